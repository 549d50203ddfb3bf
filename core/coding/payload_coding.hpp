// Codes sparse payloads in fewer bytes: values in fp16, indices as gaps. selection_coding.hpp has
// the other codings, which code each selection by itself.
//
// A coded payload, little-endian:
//   header   8 bytes: 'S', 'P', version 1, flags (bit 0: f16 values, bit 1: delta indices),
//            count as u32
//   values   f32 or f16 each, padded with zeros to a multiple of 4 bytes
//   indices  u32 each, or a gap each: u16 if it is below 65535, else u16 65535 and then the gap as
//            u32. The first gap is the first index.
// Every payload has exactly one encoding in each coding, and its length determines its end.
//
// On a device the bytes are the same. Device functions start work in the order of `stream` and
// return before it is done. They wait for nothing, and allocate nothing once a step has run with
// the largest sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/error.hpp"
#include "core/device/device.hpp"
#include "core/payload/accumulate_device.hpp"
#include "core/payload/payload.hpp"

namespace sparfuse {

enum class ValueCoding : std::uint8_t { kF32, kF16, kFitted, kCodes4 };
enum class IndexCoding : std::uint8_t { kU32, kDelta, kBloom, kU12 };
// Which of a Bloom filter's positives are sent: as many as were selected, namely the first ones or
// those that a permutation puts first; or all.
enum class BloomPolicy : std::uint8_t { kLeftmost, kRandom, kAll };

struct PayloadCoding {
  ValueCoding values = ValueCoding::kF32;
  IndexCoding indices = IndexCoding::kU32;
  BloomPolicy policy = BloomPolicy::kLeftmost;  // of kBloom, as the next
  double false_positives = 0;  // rate among unselected indices; 0: selected count / (10 n)
  std::uint32_t chunk = 0;     // of kU12, as the next: elements of a chunk, at most 4096
  // The density of every chunk's selection, from which counts follow; 0: counts vary and are sent.
  double density = 0;
  bool codes_by_chunk = false;  // of kCodes4: levels for each chunk, not for the selection
  bool operator==(const PayloadCoding&) const = default;

  // Whether selection_coding.hpp codes each selection by itself, and may change it. The functions
  // here serve the other codings.
  bool of_selections() const {
    return values == ValueCoding::kFitted || values == ValueCoding::kCodes4 ||
           indices == IndexCoding::kBloom || indices == IndexCoding::kU12;
  }
  // The coding of a selection with this density.
  PayloadCoding Of(double selected_with) const {
    PayloadCoding coding = *this;
    if (density > 0) coding.density = selected_with;
    return coding;
  }
};

inline constexpr std::size_t kPayloadHeaderBytes = 8;

// The most that EncodePayload writes for up to `capacity` elements of a range of n, rounded up to a
// multiple of 8.
std::size_t EncodedBytesBound(PayloadCoding coding, std::size_t capacity, std::size_t n);

// The expected bytes of `count` randomly selected elements of a range of n. The number of escaped
// gaps depends on the selection; without delta indices the result is exact.
std::size_t ExpectedPayloadBytes(PayloadCoding coding, std::size_t count, std::size_t n);

// Rounds `values` to the values that a receiver decodes, and adds the rounding errors to the
// residual at their indices. So sent + residual stays unchanged: exactly if the residual was zero
// there, as after a selection, and |value| < 2^29. Halves saturate at 65504. Does nothing if values
// travel as f32.
//
//   residual  [n], indexed by `indices`, or empty: rounding errors are lost.
void RoundToCoding(PayloadCoding coding, std::span<const std::uint32_t> indices,
                   std::span<float> values, std::span<float> residual);

// Encodes into `out` and returns the bytes written. Values that a half cannot hold are rounded as
// by RoundToCoding. Throws Error{kInternal} if `out` is too small or a gap is negative.
//
//   payload  indices strictly increasing and below n <= 2^32, values finite.
//   out      at least EncodedBytesBound(coding, count, n) bytes, of any alignment.
std::size_t EncodePayload(PayloadCoding coding, const SparsePayload& payload, std::size_t n,
                          std::span<std::byte> out);

// Decodes a payload of a range of n elements into the front of `indices` and `values`, of equal
// size, and returns the filled parts. Any bytes are safe: bytes that EncodePayload cannot have
// written are an Error{kComm} that says what is wrong and where. No access is out of bounds.
SparsePayload DecodePayload(std::span<const std::byte> bytes, std::size_t n,
                            std::span<std::uint32_t> indices, std::span<float> values);

// The coding that the header of a payload names. Throws Error{kComm} like DecodePayload.
PayloadCoding CodingOf(std::span<const std::byte> bytes);

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
template <class... Parts>
[[noreturn]] void MalformedPayload(const Parts&... what) {
  SPARFUSE_THROW(kComm, "malformed sparse payload: ", what...);
}

template <class T>
T LoadBytes(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Writes the bytes of `value`; returns the position after them.
std::byte* StoreBytes(std::byte* to, auto value) {
  std::memcpy(to, &value, sizeof value);
  return to + sizeof value;
}

std::byte* StoreHeader(std::byte* to, PayloadHeader header);
// Throws Error{kComm} for bytes that are no header, or for flags above `most_flags`.
PayloadHeader ReadHeader(std::span<const std::byte> bytes, std::uint8_t most_flags);

// Bytes of `count` values, kF32 or kF16, padded to a multiple of 4.
std::size_t ValueBytes(ValueCoding coding, std::size_t count);
// Writes ValueBytes of values; returns the position after them.
std::byte* StoreValues(ValueCoding coding, std::span<const float> values, std::byte* to);
// Reads ValueBytes of values that lie at byte `begin` of the payload. Throws Error{kComm} if a
// value is not finite or padding is not zero.
void ReadValues(ValueCoding coding, std::span<const std::byte> payload, std::size_t begin,
                std::span<float> values);

// RoundToCoding on a device, for the elements that the slot's report counts. residual: of the
// selection's range, or empty.
void RoundToCodingOnDevice(const Stream& stream, PayloadCoding coding, const DeviceSlot& slot,
                           DeviceSpan<float> residual);

// EncodePayload on a device.
//
//   payload    indices below n; its count may be on the device only.
//   out        at least EncodedBytesBound(coding, payload.count, n) bytes, 4-byte aligned.
//   out_bytes  a word of the device: the bytes written.
//
// Throws Error{kInternal} if `out` is too small. One launch; two with delta indices.
void EncodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace, PayloadCoding coding,
                           const DevicePayload& payload, std::size_t n, DeviceSpan<std::byte> out,
                           std::uint32_t* out_bytes);

// DecodePayload on a device, for bytes that EncodePayload wrote in this coding.
//
//   bytes    of one rank's payload, 4-byte aligned; the count is in its header.
//   indices  [capacity], as `values`: the most elements that the payload may have.
//   count    a word of the device: the number of elements. 0 if the header is wrong.
//   rank     the rank that a fault names.
//   fault    as AccumulateSparseOnDevice's. The position is an element's, or 0 if header or length
//            are wrong. After a fault the elements are unspecified. No access is out of bounds.
//
// Returns the payload with its count word. One launch; three with delta indices.
DevicePayload DecodePayloadOnDevice(const Stream& stream, DeviceWorkspace& workspace,
                                    PayloadCoding coding, DeviceSpan<const std::byte> bytes,
                                    std::size_t n, DeviceSpan<std::uint32_t> indices,
                                    DeviceSpan<float> values, std::uint32_t* count, int rank,
                                    std::uint64_t* fault);

}  // namespace sparfuse
