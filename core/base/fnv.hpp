// FNV-1a with 64 bits (Fowler, Noll, Vo): where a key must be the same on every machine and nobody
// means harm.
#pragma once

#include <cstdint>
#include <string_view>

namespace sparfuse {

inline constexpr std::uint64_t kFnvBegin = 0xcbf29ce484222325ull;

// The hash with one more value, by the standard a byte.
constexpr std::uint64_t FnvAdd(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001b3ull;
}

constexpr std::uint64_t FnvOf(std::string_view text) {
  std::uint64_t hash = kFnvBegin;
  for (const char c : text) hash = FnvAdd(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace sparfuse
