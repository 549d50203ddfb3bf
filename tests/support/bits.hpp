// Compares floats by their bits, NaNs included, and bytes, for tests that expect equal results.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace sparfuse::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

inline std::vector<std::uint32_t> Bits(const std::vector<float>& x) {
  std::vector<std::uint32_t> bits(x.size());
  if (!x.empty()) std::memcpy(bits.data(), x.data(), x.size() * sizeof(float));
  return bits;
}

inline std::vector<std::byte> BytesOf(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

}  // namespace sparfuse::testing
