// Describes all-dimension top-k: alone, and in turns with global top-k or with a kept threshold.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/sparsify/adtopk/fibres.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor AdTopKDescriptor();
SparsifierDescriptor AdTopKInterleavedDescriptor();
SparsifierDescriptor AdTopKThresholdDescriptor();

std::unique_ptr<Sparsifier> MakeAdTopK(FibreAxis axis);

// R * k for R fibres of which each keeps k.
std::size_t AllDimensionCount(std::size_t n, std::span<const std::int64_t> shape, double density,
                              FibreAxis axis);

// k / C for fibres of C elements: |x - C(x)|^2 <= (1 - k / C) |x|^2, in each of them and in all.
double AllDimensionContraction(std::size_t n, std::span<const std::int64_t> shape, double density,
                               FibreAxis axis);

// What the variants share: the option "axis", what its value means, and the smaller contraction of
// the two axes that it may name: what they promise whatever their options.
OptionSpec AxisOption();
FibreAxis AxisOf(const Options& resolved);
double SmallerContraction(std::span<const std::int64_t> shape, double density);

}  // namespace sparfuse
