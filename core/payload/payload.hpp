// Defines the wire form of an uncoded sparse payload: `count` u32 indices, then `count` f32 values.
// Its length determines the count. Indices are relative to the unit's range and strictly
// increasing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sparfuse {

inline constexpr std::size_t kSparseElementBytes = sizeof(std::uint32_t) + sizeof(float);

struct SparsePayload {
  std::span<const std::uint32_t> indices;
  std::span<const float> values;
};

// Views `bytes` as a payload. Precondition: 4-byte aligned, length a multiple of 8.
inline SparsePayload ViewSparsePayload(std::span<const std::byte> bytes) {
  const std::size_t count = bytes.size() / kSparseElementBytes;
  const auto* indices = reinterpret_cast<const std::uint32_t*>(bytes.data());
  const auto* values = reinterpret_cast<const float*>(bytes.data() + count * sizeof(std::uint32_t));
  return {{indices, count}, {values, count}};
}

}  // namespace sparfuse
