// Keeps the indices of a selection in a Bloom filter: a set that takes fewer bits than a list, but
// also has some indices that were not inserted (false positives).
//
// Source: B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13(7),
// 1970; sizes as K. Kostopoulou, H. Xu, A. Kalnis et al., "DeepReduce: a sparse-tensor
// communication framework for federated deep learning", NeurIPS 2021, and its code: m bits and H
// hashes for k of n indices and a rate p of false positives,
//
//   p = 0.1 k / n unless given    m = ceil(k log2(1/p) / ln 2)    H = ceil(log2(1/p))
//
// The hashes are this project's (the published ones are a table that is not shipped). With z_s(i)
// the upper 32 bits of Mix64(s + (i + 1) * 0x9e3779b97f4a7c15) (random_stream.hpp), the H bits of
// index i are
//
//   g_0 = a,  g_j = g_(j-1) + y_j mod m,  y_1 = b,  y_(j+1) = y_j + j mod m
//   a = floor(z_s(i) m / 2^32), s = 0x243f6a8885a308d3    b = the same, s = 0x13198a2e03707344
//
// that is g_j = a + j b + (j^3 - j) / 6 mod m: enhanced double hashing as in P. C. Dillinger and P.
// Manolios, "Bloom filters in probabilistic verification", FMCAD 2004, section 5.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"

namespace sparfuse {

struct BloomShape {
  std::uint32_t bits = 0;
  std::uint32_t hashes = 0;
  bool operator==(const BloomShape&) const = default;

  std::size_t words() const { return (std::size_t{bits} + 31) / 32; }
};

inline constexpr std::uint32_t kMostBloomHashes = 64;

// The shape of a filter for `count` of n indices; {0, 0} for none.
//
//   rate  of false positives, at most 1/2; 0: 0.1 count / n. It is at least 2^-64, the rate of 64
//         hashes.
//
// Throws Error{kUnsupported} for a filter of 2^32 bits or more.
BloomShape BloomShapeOf(std::size_t count, std::size_t n, double rate);

// The expected number of positives among n indices, in a filter of `count` of them, which are
// included.
double ExpectedPositives(std::size_t count, std::size_t n, double rate);

// Keeps its working memory between calls. Used by one thread at a time.
class BloomFilter {
 public:
  // Builds the filter of these indices.
  void Build(BloomShape shape, std::span<const std::uint32_t> indices);
  // Returns room for the words of a filter that was built elsewhere; the caller fills it.
  std::span<std::uint32_t> Take(BloomShape shape);

  const BloomShape& shape() const noexcept { return shape_; }
  // Bit b of the filter is bit b % 32 of words()[b / 32].
  std::span<const std::uint32_t> words() const { return std::span(words_).first(shape_.words()); }

  // Returns the first `most` positives of the filter below n, increasing; fewer if it has no more.
  // Valid until the next call. Cost: some two look-ups per index, by all threads of the pool.
  std::span<const std::uint32_t> Positives(std::size_t n, std::size_t most, ThreadPool& pool);

 private:
  BloomShape shape_;
  std::vector<std::uint32_t> words_;
  std::vector<std::uint32_t> positives_;
  std::vector<std::vector<std::uint32_t>> parts_;  // the threads' results
};

}  // namespace sparfuse
