// Reads and writes the parts that coded payloads have in common: header and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "core/quantize/coding/payload_coding.hpp"

namespace sparfuse {

enum PayloadFlags : std::uint8_t {
  kFlagF16 = 1,
  kFlagDelta = 2,
  kFlagFitted = 4,
  kFlagBloom = 8,
  kFlagPermuted = 16,
};

struct PayloadHeader {
  std::uint8_t flags = 0;
  std::uint32_t count = 0;
};

// Throws Error{kComm}.
[[noreturn]] void MalformedPayload(const std::string& what);

template <class T>
T LoadBytes(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Writes the bytes of `value`; returns what lies behind them.
template <class T>
std::byte* StoreBytes(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
  return to + sizeof value;
}

std::byte* StoreHeader(std::byte* to, PayloadHeader header);
// Throws Error{kComm} for what is no header, or has flags above `most_flags`.
PayloadHeader ReadHeader(std::span<const std::byte> bytes, std::uint8_t most_flags);

// Bytes of `count` values, kF32 or kF16, padded to a multiple of 4.
std::size_t ValueBytes(ValueCoding coding, std::size_t count);
// Writes ValueBytes of values; returns what lies behind them.
std::byte* StoreValues(ValueCoding coding, std::span<const float> values, std::byte* to);
// Reads ValueBytes of values that lie at byte `begin` of the payload. Throws Error{kComm} where one
// is not finite, or padding is not zero.
void ReadValues(ValueCoding coding, std::span<const std::byte> payload, std::size_t begin,
                std::span<float> values);

}  // namespace sparfuse
