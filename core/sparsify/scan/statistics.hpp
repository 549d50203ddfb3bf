// Measures x for threshold sparsifiers: moments, the tail above a magnitude, counts at several
// thresholds; and the selection of everything that reaches one.
//
// Sums are the same, bit for bit, whatever the instruction set and the size of the pool, and within
// 1e-6 relative of a sum in double precision (`sum`: relative to the sum of magnitudes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/scan/tensor_statistics.hpp"

namespace sparfuse {

// Measures x in one pass, which adds the residual if that is pending. `statistics` says what beside
// the moments; its sums are zero before. Invalidates candidates. Throws Error{kNumeric}.
Statistics Measure(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   Statistics statistics = {});

// Adds to `total`, in index order, what one block of x holds. n <= kBlock.
void MeasureBlock(const SelectKernels& kernels, const float* x, std::size_t n, Statistics& total);

// Adds a part that lies behind those added before.
void AddStatistics(const Statistics& part, Statistics& total);

// counts[j] = elements of x with key >= keys[j], for at most kCountedKeys keys in one pass.
// Precondition: nothing is pending.
void CountReaching(const SelectContext& context, const SelectInput& input,
                   std::span<const std::uint32_t> keys, std::span<std::size_t> counts);

// The number of stored candidates with key >= `key`; kept in `above` of their segments.
std::size_t CountCandidates(const SelectContext& context, const Candidates& candidates,
                            std::uint32_t key);

// Sends the candidates that CountCandidates counted last, with the same key. They fit the slot.
void SendCandidates(const SelectContext& context, const SelectInput& input,
                    const Candidates& candidates, std::uint32_t key, Slot& slot);

// Sends all of x with key >= `key`. If that is nothing, the k largest are sent and `fallbacks`
// raised; if it is more than the slot holds, the k largest are sent and `overflows` raised. Returns
// how many reach the key. Precondition: k <= slot.capacity.
std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         std::uint32_t key, std::size_t k, Slot& slot);

// The same, where candidates are at hand.
std::size_t TakeReaching(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                         const Candidates& candidates, std::uint32_t key, std::size_t k,
                         Slot& slot);

// z >= 0 with P(|N(0, 1)| > z) = density. density in (0, 1].
double TwoSidedNormalQuantile(double density);

}  // namespace sparfuse
