#include "core/coding/bloom_filter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "core/coding/bloom_kernels.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kPart = 65536;      // indices that a thread looks up at once
constexpr std::size_t kPartsAThread = 4;  // before their results are joined

double RateOf(std::size_t count, std::size_t n, double rate) {
  if (rate == 0) return 0.1 * static_cast<double>(count) / static_cast<double>(n);
  return std::max(rate, std::exp2(-static_cast<double>(kMostBloomHashes)));
}

}  // namespace

BloomShape BloomShapeOf(std::size_t count, std::size_t n, double rate) {
  if (count == 0) return {};
  const double halvings = -std::log2(RateOf(count, n, rate));
  const double bits = std::ceil(halvings * static_cast<double>(count) / std::numbers::ln2);
  if (bits > std::numeric_limits<std::uint32_t>::max()) {
    SPARFUSE_THROW(kUnsupported, "a Bloom filter of ", count, " of ", n, " indices has ", bits,
                   " bits; expected below 2^32");
  }
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(std::ceil(halvings))};
}

double ExpectedPositives(std::size_t count, std::size_t n, double rate) {
  if (count == 0) return 0;
  return static_cast<double>(count) + RateOf(count, n, rate) * static_cast<double>(n - count);
}

std::span<std::uint32_t> BloomFilter::Take(BloomShape shape) {
  shape_ = shape;
  if (words_.size() < shape.words()) words_.resize(shape.words());
  return std::span(words_).first(shape.words());
}

void BloomFilter::Build(BloomShape shape, std::span<const std::uint32_t> indices) {
  const std::span<std::uint32_t> words = Take(shape);
  std::ranges::fill(words, 0);
  if (shape.bits == 0) return;
  BloomKernelsFor(ActiveIsa())
      .insert({words.data(), shape.bits, shape.hashes}, indices.data(), indices.size(),
              words.data());
}

std::span<const std::uint32_t> BloomFilter::Positives(std::size_t n, std::size_t most,
                                                      ThreadPool& pool) {
  if (shape_.bits == 0) return {};
  const BloomKernels& kernels = BloomKernelsFor(ActiveIsa());
  const BloomView view{words_.data(), shape_.bits, shape_.hashes};
  const std::size_t together = kPartsAThread * static_cast<std::size_t>(pool.threads());
  parts_.resize(std::max(parts_.size(), together));
  std::size_t found = 0;
  for (std::size_t first = 0; first < n && found < most; first += together * kPart) {
    const std::size_t parts = std::min(together, (n - first + kPart - 1) / kPart);
    std::vector<std::size_t> sizes(parts);
    pool.ParallelFor(parts, [&](std::size_t part, int) {
      const std::size_t begin = first + part * kPart;
      const std::size_t size = std::min(kPart, n - begin);
      if (parts_[part].size() < size) parts_[part].resize(size);
      sizes[part] =
          kernels.query(view, static_cast<std::uint32_t>(begin), size, parts_[part].data());
    });
    for (std::size_t part = 0; part < parts && found < most; ++part) {
      const std::size_t taken = std::min(sizes[part], most - found);
      if (positives_.size() < found + taken) positives_.resize(std::max(found + taken, 2 * found));
      std::copy_n(parts_[part].data(), taken, positives_.data() + found);
      found += taken;
    }
  }
  return std::span(positives_).first(found);
}

}  // namespace sparfuse
