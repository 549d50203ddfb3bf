// Splits a payload into the parts of several servers, each in the wire form.
//
// Two ways, which give the same parts: by counting, in two passes, and as Zen does it on a device,
// by hierarchical hashing, where parts are found in parallel without counting first, and without
// locks: a parallel region takes most elements, in slots that further hashes choose, and a serial
// region the few for which all of those are taken.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/payload/payload.hpp"

namespace sparfuse::baselines {

// Parts side by side, each with increasing indices. Memory is used again by the next split.
class Parts {
 public:
  std::size_t Count(std::size_t part) const { return begins_[part + 1] - begins_[part]; }
  SparsePayload View(std::size_t part) const {
    return {{Words(part), Count(part)},
            {reinterpret_cast<const float*>(Words(part) + Count(part)), Count(part)}};
  }
  std::span<const std::byte> Bytes(std::size_t part) const {
    return std::as_bytes(std::span(Words(part), 2 * Count(part)));
  }
  // To overwrite indices where the payload is no longer sent.
  std::span<std::uint32_t> Indices(std::size_t part) { return {Words(part), Count(part)}; }

  // counts: elements of each part. What the parts hold is then undefined.
  void Reset(std::span<const std::size_t> counts);
  void Set(std::size_t part, std::size_t at, std::uint32_t index, float value);

 private:
  const std::uint32_t* Words(std::size_t part) const { return words_.data() + 2 * begins_[part]; }
  std::uint32_t* Words(std::size_t part) { return words_.data() + 2 * begins_[part]; }

  std::vector<std::uint32_t> words_;
  std::vector<std::size_t> begins_;
};

// part_of[i]: the part of element i, below `parts`. Cost: O(elements).
void SplitByCounting(const SparsePayload& from, std::span<const std::uint32_t> part_of,
                     std::size_t parts, Parts& out);

inline constexpr int kMostProbes = 8;

// Zen's data structure: for each part `parallel` slots, in which up to `probes` hashes look for a
// free one, and `serial` slots that are filled one after another.
struct HashRegions {
  std::size_t parallel = 1;  // r1 >= 1
  std::size_t serial = 1;    // r2
  int probes = 3;            // T, 1 to kMostProbes

  // r1 = slots_per_element * elements / parts, r2 = serial_part * r1, both at least 1.
  static HashRegions For(std::size_t elements, std::size_t parts, double slots_per_element = 2,
                         double serial_part = 0.1, int probes = 3);
};

struct HashingReport {
  int passes = 0;  // each with twice the serial slots of the one before
  std::array<std::size_t, kMostProbes> found{};  // elements that the t-th probe has placed
  std::size_t serial = 0;                        // elements in serial regions
  std::size_t most_serial = 0;                   // in the fullest
};

// The same by hierarchical hashing; where a serial region overflows all is done again with twice
// the serial slots. Elements are placed in their order, and parts are sorted: which slot an element
// got does not show. Cost: O(elements log elements + slots).
HashingReport SplitByHashing(const SparsePayload& from, std::span<const std::uint32_t> part_of,
                             std::size_t parts, HashRegions regions,
                             std::vector<std::uint32_t>& slots, Parts& out);

}  // namespace sparfuse::baselines
