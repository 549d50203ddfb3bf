// Draws random numbers by counter: the i-th number of a stream is a pure function of the stream's
// key and i. It uses integer arithmetic only, so that every rank on every machine draws the same
// numbers.
//
// Source: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014 (the SplitMix64 finaliser).
#pragma once

#include <cstdint>

namespace sparfuse {

constexpr std::uint64_t Mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class RandomStream {
 public:
  constexpr RandomStream(std::uint64_t seed, std::uint64_t tensor_id, std::uint64_t step)
      : key_(Mix64(Mix64(Mix64(seed + kGolden) + tensor_id + kGolden) + step + kGolden)) {}

  // At(i) = Mix64(key() + (i + 1) * 0x9e3779b97f4a7c15), for vector code that draws many at once.
  constexpr std::uint64_t key() const { return key_; }
  constexpr std::uint64_t At(std::uint64_t i) const { return Mix64(key_ + (i + 1) * kGolden); }

  // Uniform in [0, bound), to within bound / 2^64. bound >= 1.
  constexpr std::uint64_t Below(std::uint64_t bound, std::uint64_t i) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(At(i)) * bound) >> 64);
  }

 private:
  static constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  std::uint64_t key_;
};

}  // namespace sparfuse
