// Computes FNV-1a hashes of 64 bits (Fowler, Noll, Vo), for keys that must be equal on every
// machine. They do not resist attacks.
#pragma once

#include <cstdint>
#include <string_view>

namespace sparfuse {

inline constexpr std::uint64_t kFnvBegin = 0xcbf29ce484222325ull;

// Adds one value to the hash; in the standard, a byte.
constexpr std::uint64_t FnvAdd(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001b3ull;
}

constexpr std::uint64_t FnvOf(std::string_view text) {
  std::uint64_t hash = kFnvBegin;
  for (const char c : text) hash = FnvAdd(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace sparfuse
