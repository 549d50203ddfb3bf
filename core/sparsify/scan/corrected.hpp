// Corrects estimated thresholds: collects candidates in the pass that measures, and sends the k
// largest if the estimate misses k. The sparsifiers that estimate a threshold share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/sparsify/scan/largest.hpp"
#include "core/sparsify/scan/statistics.hpp"

namespace sparfuse {

// An estimated threshold stands if it selects within k / 50 of k: 2 %, and exactly k below 50.
inline constexpr std::size_t CountTolerance(std::size_t k) { return k / 50; }

// Measures all of x and collects at least min(k + CountTolerance(k) + 1, n) candidates. They
// include the selection of any threshold that selects too few or about k elements. It takes one
// pass over x. If too few elements reach the bound, or too many reach the bound of the step before,
// `fallbacks` is raised and a pass added. If more elements than can be stored equal the magnitude
// of that rank, only the elements above it are collected, and Candidates::ties_below is set.
//   bound   the tensor's bound, or null: then a sample gives one.
// Throws Error{kNumeric}.
Candidates CollectAndMeasure(const SelectContext& context, SelectInput& input,
                             const TensorInfo& info, std::size_t k, const WarmBound* bound,
                             Statistics* statistics);

// Lets the bound (or null) learn from its candidates. kth_key: the key of the k-th magnitude.
void Learn(const Candidates& candidates, std::uint32_t kth_key, std::size_t k, WarmBound* bound);

// Sends all elements with |x| > `estimate` if their number is k to within CountTolerance, else the
// k largest, and lets the bound (or null) learn. An estimate that is not a number raises
// `fallbacks`.
//   candidates  from CollectAndMeasure. Their bound does not change the selection, unless they were
//               too many to store: then the k largest are sent.
// Returns the number of elements above the estimate: a lower limit if it is below all candidates, 0
// if it is not a number.
std::size_t SendCorrected(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                          const Candidates& candidates, double estimate, std::size_t k,
                          WarmBound* bound, Slot& slot);

// The contraction of SendCorrected: it keeps the k - CountTolerance(k) largest elements, or more.
double CorrectedFraction(std::span<const std::int64_t> shape, double density);

// The contraction of any selection that keeps the largest element: 1 / n.
double OneElement(std::span<const std::int64_t> shape, double density);

}  // namespace sparfuse
