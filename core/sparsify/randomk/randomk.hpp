// Draws sets of random positions as bitmaps, because reading a bitmap in order yields sorted
// positions at no cost. The sparsifier `randomk` sends the same set on every rank.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

// Returns a bitmap of n clear bits. It is valid until the next use of kUseSample.
std::span<std::uint64_t> ClearBitmap(Workspace& workspace, std::size_t n);

// Marks `count` distinct positions of [0, n) in a clear bitmap. Positions are drawn one after
// another, and a draw that hits a marked position is repeated, so that every set of that size is
// equally likely. Precondition: count <= n / 2 + 1, so that repetitions are rare.
void MarkDistinct(const RandomStream& stream, std::size_t n, std::size_t count,
                  std::span<std::uint64_t> bitmap);

// The elements of x that are checked to be finite.
enum class Checked : std::uint8_t { kNothing, kSent, kAll };

// Moves the elements whose bits are set, or with `inverted` the others, from the residual into the
// slot. Throws Error{kNumeric} if an element to check is not finite. A pending addition is done
// first, and then all of x is checked.
//
// Cost: one pass over x if all elements are checked or an addition is pending, else one over the
// sent elements. Precondition: the slot has room for them.
void TakeBitmap(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                std::span<const std::uint64_t> bitmap, bool inverted, Checked checked, Slot& slot);

// Selects exactly k elements; every set of k is equally likely. If k is above half of n, the unsent
// elements are drawn instead. Checks as TakeBitmap. Preconditions: 1 <= k < n; k <= slot.capacity.
void SelectRandom(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const RandomStream& stream, std::size_t k, Checked checked, Slot& slot);

// Selects the elements at `count` positions that are drawn with replacement. A position that is
// drawn twice counts once. Preconditions: nothing is pending, x is finite; 1 <= count <=
// slot.capacity.
void SelectDrawn(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                 const RandomStream& stream, std::size_t count, Slot& slot);

}  // namespace sparfuse
