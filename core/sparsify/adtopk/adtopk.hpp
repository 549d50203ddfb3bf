// Makes and counts all-dimension top-k: alone, and in turns with global top-k or with a kept
// threshold.
//
// It keeps top-k along one axis of a tensor, in each fibre by itself. A fibre is the elements that
// share every index but the one of the axis. Of `length` elements it keeps the k = max(1,
// trunc(length * density)) largest magnitudes, ties to the lower index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

enum class FibreAxis : std::uint8_t {
  kFirst,    // 0
  kSecond,   // 1
  kLongest,  // 0 where the first extent is larger than the second, else 1
};

// Element (o, c, i) of fibre (o, i) lies at (o * length + c) * inner + i.
struct Fibres {
  std::size_t outer = 1;
  std::size_t length = 1;
  std::size_t inner = 1;

  std::size_t count() const { return outer * inner; }
};

// The product of the extents: 1 of {}.
std::size_t ElementsOf(std::span<const std::int64_t> shape);

// The fibres of a row-major tensor; one fibre where it has fewer than two dimensions.
// Precondition: the product of the extents is n, or the shape is empty.
Fibres FibresOf(std::size_t n, std::span<const std::int64_t> shape, FibreAxis axis);

// Selects k of each fibre into the slot, sorted by index, and zeroes them in the residual.
//
// Preconditions: 1 <= k < fibres.length; slot.capacity >= k * fibres.count().
// Throws Error{kNumeric}.
// Cost: one pass over x. What is kept of a fibre is bounded from the fibre before it; where fewer
// than k elements reach the bound, `fallbacks` is raised and the block of fibres looked at again.
void SelectFibres(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const Fibres& fibres, std::size_t k, Slot& slot);

// The same on a device. Preconditions: 1 <= k < fibres.length; the slot has room. Cost: one launch
// and one read of x where fibres are contiguous or a slice of them is 8192 elements or fewer; else
// two launches, or for fibres of more than 1024 elements four and two passes more.
void SelectFibresOnDevice(const DeviceContext& context, const SelectSource& source,
                          const Fibres& fibres, std::size_t k, DeviceSlot& slot);

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
