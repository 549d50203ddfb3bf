#include "core/payload/sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kBits = 64;

}  // namespace

std::span<std::byte> SparseSums::WriteTo(std::span<std::byte> out) const {
  const std::size_t half = size() * sizeof(std::uint32_t);
  if (half > 0) {
    std::memcpy(out.data(), indices.data(), half);
    std::memcpy(out.data() + half, values.data(), half);
  }
  return out.first(2 * half);
}

void SparseSums::WriteTo(std::vector<std::byte>& out) const {
  out.resize(bytes());
  WriteTo(std::span(out));
}

SparsePayload Slice(const SparsePayload& from, std::size_t begin, std::size_t end) {
  const auto first = std::lower_bound(from.indices.begin(), from.indices.end(), begin);
  const auto last = std::lower_bound(first, from.indices.end(), end);
  const auto at = static_cast<std::size_t>(first - from.indices.begin());
  const auto count = static_cast<std::size_t>(last - first);
  return {from.indices.subspan(at, count), from.values.subspan(at, count)};
}

bool AreIncreasing(std::span<const std::uint32_t> indices) {
  // Without a branch and with comparisons that every instruction set has.
  const auto as_signed = [](std::uint32_t index) {
    return static_cast<std::int32_t>(index ^ 0x80000000u);
  };
  std::int32_t increasing = -1;
  for (std::size_t i = 1; i < indices.size(); ++i) {
    increasing &= as_signed(indices[i]) > as_signed(indices[i - 1]) ? -1 : 0;
  }
  return increasing != 0;
}

void Merge(const SparsePayload& a, const SparsePayload& b, SparseSums& out) {
  const std::size_t most = a.indices.size() + b.indices.size();
  out.indices.resize(most);
  out.values.resize(most);
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t to = 0;
  while (i < a.indices.size() && j < b.indices.size()) {
    const std::uint32_t left = a.indices[i];
    const std::uint32_t right = b.indices[j];
    // Without branches: the smaller index cannot be predicted.
    const bool take_left = left <= right;
    const bool take_right = right <= left;
    out.indices[to] = take_left ? left : right;
    out.values[to] = (take_left && take_right) ? a.values[i] + b.values[j]
                     : take_left               ? a.values[i]
                                               : b.values[j];
    ++to;
    i += take_left;
    j += take_right;
  }
  const auto rest = [&](const SparsePayload& from, std::size_t at) {
    const std::size_t count = from.indices.size() - at;
    std::copy_n(from.indices.begin() + static_cast<std::ptrdiff_t>(at), count,
                out.indices.begin() + static_cast<std::ptrdiff_t>(to));
    std::copy_n(from.values.begin() + static_cast<std::ptrdiff_t>(at), count,
                out.values.begin() + static_cast<std::ptrdiff_t>(to));
    to += count;
  };
  rest(a, i);
  rest(b, j);
  out.indices.resize(to);
  out.values.resize(to);
}

float KthMagnitude(std::span<const float> values, std::size_t k) {
  if (k == 0 || k > values.size()) return 0;
  // Magnitudes have the order of their bits. The upper bits leave few candidates for the k-th,
  // which takes a fraction of the time of sorting all magnitudes.
  constexpr int kLowerBits = 20;
  const auto bits_of = [](float value) { return std::bit_cast<std::uint32_t>(MagnitudeOf(value)); };
  std::array<std::size_t, std::size_t{1} << (31 - kLowerBits)> counts{};
  for (const float value : values) ++counts[bits_of(value) >> kLowerBits];
  std::size_t upper = counts.size() - 1;
  for (; counts[upper] < k; --upper) k -= counts[upper];
  std::vector<std::uint32_t> candidates;
  candidates.reserve(counts[upper]);
  for (const float value : values) {
    if (bits_of(value) >> kLowerBits == upper) candidates.push_back(bits_of(value));
  }
  const auto kth = candidates.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::nth_element(candidates.begin(), kth, candidates.end(), std::greater<>());
  return std::bit_cast<float>(*kth);
}

void KeepLargest(const SparsePayload& from, std::size_t k, SparseSums& kept, SparseSums& rest) {
  kept.Clear();
  rest.Clear();
  const std::size_t count = from.indices.size();
  if (count <= k) {
    kept.indices.assign(from.indices.begin(), from.indices.end());
    kept.values.assign(from.values.begin(), from.values.end());
    return;
  }
  const float bound =
      k == 0 ? std::numeric_limits<float>::infinity() : KthMagnitude(from.values, k);
  // Of the elements at the bound the first ones are kept, as many as fit.
  std::size_t above = 0;
  for (const float value : from.values) above += MagnitudeOf(value) > bound;
  std::size_t at_bound = k == 0 ? 0 : k - above;
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = MagnitudeOf(from.values[i]);
    const bool tie = magnitude == bound && at_bound > 0;
    at_bound -= tie;
    (magnitude > bound || tie ? kept : rest).Add(from.indices[i], from.values[i]);
  }
}

void RangeSums::Reset(std::size_t begin, std::size_t end) {
  begin_ = begin;
  size_ = end - begin;
  sums_.assign(size_, 0.0f);
  there_.assign((size_ + kBits - 1) / kBits, 0);
}

void RangeSums::Add(const SparsePayload& payload) {
  for (std::size_t i = 0; i < payload.indices.size(); ++i) {
    const std::size_t at = payload.indices[i] - begin_;
    if (payload.indices[i] < begin_ || at >= size_) {
      SPARFUSE_THROW(kComm, "a payload has index ", payload.indices[i], ": expected one from ",
                     begin_, " to below ", begin_ + size_);
    }
    sums_[at] += payload.values[i];
    there_[at / kBits] |= std::uint64_t{1} << (at % kBits);
  }
}

void RangeSums::AppendTo(SparseSums& out) const {
  for (std::size_t word = 0; word < there_.size(); ++word) {
    for (std::uint64_t left = there_[word]; left != 0; left &= left - 1) {
      const std::size_t at = word * kBits + static_cast<std::size_t>(std::countr_zero(left));
      out.Add(static_cast<std::uint32_t>(begin_ + at), sums_[at]);
    }
  }
}

std::size_t RangeSums::count() const {
  return std::accumulate(there_.begin(), there_.end(), std::size_t{0},
                         [](std::size_t sum, std::uint64_t word) {
                           return sum + static_cast<std::size_t>(std::popcount(word));
                         });
}

}  // namespace sparfuse
