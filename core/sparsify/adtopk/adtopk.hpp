// Makes and counts all-dimension top-k: alone, and in turns with global top-k or with a kept
// threshold.
//
// All-dimension top-k selects along one axis of a tensor, in each fibre by itself. A fibre is the
// elements that share every index but the one of the axis. Of a fibre's `length` elements the
// method keeps the k = max(1, trunc(length * density)) largest magnitudes, ties to the lower index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

enum class FibreAxis : std::uint8_t {
  kFirst,    // 0
  kSecond,   // 1
  kLongest,  // 0 if the first extent is larger than the second, else 1
};

// Element (o, c, i) of fibre (o, i) lies at (o * length + c) * inner + i.
struct Fibres {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t inner = 1;

  std::size_t count() const { return outer * inner; }
};

// The fibres of a row-major tensor; one fibre if it has fewer than two dimensions.
// Precondition: the product of the extents is n, or the shape is empty.
Fibres FibresOf(std::size_t n, std::span<const std::int64_t> shape, FibreAxis axis);

// Selects k of each fibre into the slot, sorted by index, and zeroes them in the residual.
//
// Preconditions: 1 <= k < fibres.length; slot.capacity >= k * fibres.count().
// Throws Error{kNumeric}.
// Cost: one pass over x. A fibre's bound for its selection comes from the fibre before it. If fewer
// than k elements reach the bound, `fallbacks` is raised and the block of fibres is read again.
void SelectFibres(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Fibres& fibres, std::size_t k, Slot& slot);

std::unique_ptr<Sparsifier> MakeAdTopK(FibreAxis axis);

// R * k for R fibres that keep k elements each.
std::size_t AllDimensionCount(std::size_t n, std::span<const std::int64_t> shape, double density,
                              FibreAxis axis);

// k / C for fibres of C elements: |x - C(x)|^2 <= (1 - k / C) |x|^2, in each fibre and in the
// tensor.
double AllDimensionContraction(std::size_t n, std::span<const std::int64_t> shape, double density,
                               FibreAxis axis);

// Shared by the variants: the option "axis", the axis that its value names, and the smaller
// contraction of the two axes, which a variant promises whatever its options.
OptionSpec AxisOption();
FibreAxis AxisOf(std::string_view axis);
double SmallerContraction(std::span<const std::int64_t> shape, double density);

}  // namespace sparfuse
