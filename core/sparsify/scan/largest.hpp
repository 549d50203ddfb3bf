// Selects exactly the k largest magnitudes: total order |x| descending, index ascending.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

// Selects exactly k elements of x into the slot, sorted by index, and zeroes them in the residual.
//
//   bound   a key that k elements are expected to reach, or 0: then a sample gives one. It decides
//           the time taken, never the result.
//   kth     with a bound: what the k-th largest key is expected to be, likewise.
//   Returns a key that exactly the selected elements, or with ties a few more, reach.
//
// Preconditions: 1 <= k <= n, k <= slot.capacity. Throws Error{kNumeric}.
// Cost: one pass over x, as a rule. Where the bound was too high, or more candidates reach it than
// 2k + 65536, `fallbacks` is raised and a pass repeated with a bound that the pass before gives.
std::uint32_t SelectLargest(const SelectContext& context, SelectInput& input,
                            const TensorInfo& info, std::size_t k, std::uint32_t bound, Slot& slot,
                            std::uint32_t kth = kNoKey);

// The same, from candidates that are known to be the elements with key >= candidates.lo and at
// least k of them, or with a crowd below them of at least k.
std::uint32_t SelectLargestAmong(const SelectContext& context, SelectInput& input,
                                 const TensorInfo& info, Candidates candidates, std::size_t k,
                                 Slot& slot);

// What a sample tells before a pass: a key that k elements of x are expected to reach and not many
// more, and, where there is a residual, about the k-th largest key. Of a small tensor, nothing.
struct Bound {
  std::uint32_t key = 0;
  std::uint32_t kth = kNoKey;
  // More than twice CandidateCapacity are expected to reach the key, most of which equal it.
  bool crowded = false;
};

// `margin` >= 1 lowers the bound. Throws Error{kNumeric}.
Bound SampledBound(const SelectContext& context, const SelectInput& input, const TensorInfo& info,
                   std::size_t k, double margin);

// The rank-th largest of stored candidates. Precondition: 1 <= rank <= candidates.count.
std::uint32_t KeyOfRank(const SelectContext& context, const Candidates& candidates,
                        std::size_t rank);

}  // namespace sparfuse
