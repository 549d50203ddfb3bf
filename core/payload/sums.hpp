// Sums sparse payloads on their way, for collectives that add.
//
// Sums of equal payloads in equal order have equal bits, on every rank. Magnitudes are ordered by
// |x|, then by index, the smaller first; a NaN counts as the largest, so that it is not lost.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/payload/payload.hpp"

namespace sparfuse {

inline float MagnitudeOf(float value) {
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : std::fabs(value);
}

// Elements with increasing indices, under construction.
struct SparseSums {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  SparseSums() = default;
  explicit SparseSums(const SparsePayload& from)
      : indices(from.indices.begin(), from.indices.end()),
        values(from.values.begin(), from.values.end()) {}

  std::size_t size() const { return indices.size(); }
  std::size_t bytes() const { return size() * kSparseElementBytes; }
  SparsePayload view() const { return {indices, values}; }
  void Clear() {
    indices.clear();
    values.clear();
  }
  void Add(std::uint32_t index, float value) {
    indices.push_back(index);
    values.push_back(value);
  }
  // Writes the wire form. Precondition: out.size() >= bytes(). Returns the written part of `out`.
  std::span<std::byte> WriteTo(std::span<std::byte> out) const;
  // Replaces the content of `out` by the wire form.
  void WriteTo(std::vector<std::byte>& out) const;
};

// The elements with begin <= index < end. Cost: O(log n).
SparsePayload Slice(const SparsePayload& from, std::size_t begin, std::size_t end);

// out = a + b. Values of the same index are added in this order. `out` is neither `a` nor `b`.
void Merge(const SparsePayload& a, const SparsePayload& b, SparseSums& out);

// Whether each index is greater than the one before it. Takes as long as reading them.
bool AreIncreasing(std::span<const std::uint32_t> indices);

// Splits `from` into its k largest and the rest, both with increasing indices.
void KeepLargest(const SparsePayload& from, std::size_t k, SparseSums& kept, SparseSums& rest);

// The magnitude of the k-th largest element; 0 if there are fewer than k or k is 0.
float KthMagnitude(std::span<const float> values, std::size_t k);

// Sums payloads over a contiguous range of elements, in the order in which they are added.
class RangeSums {
 public:
  // Clears the sums and sets the range to elements begin ... end - 1.
  void Reset(std::size_t begin, std::size_t end);
  // Throws Error{kComm} if an index lies outside the range.
  void Add(const SparsePayload& payload);
  // Appends the sums, each added index once, also those whose sum is 0.
  void AppendTo(SparseSums& out) const;
  std::span<const float> dense() const { return {sums_.data(), size_}; }
  // Bit i % 64 of word i / 64 says whether element begin + i was added. Bits after the end are 0.
  std::span<const std::uint64_t> added() const { return there_; }
  std::size_t count() const;  // number of added indices

 private:
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
  std::vector<float> sums_;
  std::vector<std::uint64_t> there_;  // one bit per element
};

}  // namespace sparfuse
