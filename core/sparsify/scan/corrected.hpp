// Corrects estimated thresholds: collects candidates in the pass that measures, then moves the
// estimate to the count that was asked for. Shared by the sparsifiers that estimate a threshold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/statistics.hpp"

namespace sparfuse {

// An estimated threshold stands if it selects within k / 50 of k: 2 %, and exactly k below 50.
inline constexpr std::size_t CountTolerance(std::size_t k) { return k / 50; }

// Measures all of x and collects at least k + CountTolerance(k) + 1 candidates, or n where that is
// less: any threshold that selects too few or about k finds what it selects among them. One pass
// over x; where too few elements reach the bound, or too many that of the step before,
// `fallbacks` is raised and a pass added. Where more than can be stored equal the magnitude of that
// rank, only what is above it is collected, and Candidates::ties_below says so.
//   bound   of the tensor, or null: then a sample gives one.
// Throws Error{kNumeric}.
Candidates CollectAndMeasure(const SelectContext& context, SelectInput& input,
                             const TensorInfo& info, std::size_t k, const WarmBound* bound,
                             Statistics* statistics);

// Tells the bound (or null) how its candidates fared; kth_key: of the k-th magnitude.
void Learn(const Candidates& candidates, std::uint32_t kth_key, std::size_t k, WarmBound* bound);

// Sends everything with |x| > `estimate` if that is k to within CountTolerance, else the k largest,
// and lets the bound (or null) learn. An estimate that is not a number raises `fallbacks`.
//   candidates  from CollectAndMeasure. What is sent does not depend on their bound, unless they
//               were too many to store: then the k largest are sent.
// Returns how many elements are above the estimate, a lower limit where it is below all candidates;
// 0 where it is not a number.
std::size_t SendCorrected(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          const Candidates& candidates, double estimate, std::size_t k,
                          WarmBound* bound, Slot& slot);

// What SendCorrected promises of any x: it keeps the largest, k - CountTolerance(k) or more.
double CorrectedFraction(std::span<const std::int64_t> shape, double density);

// What any selection promises that keeps the largest element: 1 / n.
double OneElement(std::span<const std::int64_t> shape, double density);

}  // namespace sparfuse
