// Draws sets of random positions as bitmaps: reading a bitmap back in order sorts the positions for
// nothing. The sparsifier `randomk` sends the same set on every rank.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/random_stream.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

// A bitmap of n clear bits. Valid until the next use of kUseSample.
std::span<std::uint64_t> ClearBitmap(Workspace& workspace, std::size_t n);

// Marks `count` distinct positions of [0, n) in a clear bitmap: positions are drawn one after
// another, and one that was drawn before is drawn again, which leaves every set of that size
// equally likely. Precondition: count <= n / 2 + 1, so that a draw is seldom repeated.
void MarkDistinct(const RandomStream& stream, std::size_t n, std::size_t count,
                  std::span<std::uint64_t> bitmap);

// What of x is looked at for what is not finite.
enum class Checked : std::uint8_t { kNothing, kSent, kAll };

// Moves the elements whose bits are set, or with `inverted` the others, from the residual into the
// slot. Throws Error{kNumeric} where there is one among those to check that is not finite. Where
// all are checked, or something is pending, which is added and checked whole, in one pass over x,
// else over what is sent.
//
// Precondition: the slot has room for them.
void TakeBitmap(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                std::span<const std::uint64_t> bitmap, bool inverted, Checked checked, Slot& slot);

// Exactly k elements, every set of k equally likely. Above half, the elements that are not sent are
// drawn. Checks as above. Preconditions: 1 <= k < n; k <= slot.capacity.
void SelectRandom(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                  const RandomStream& stream, std::size_t k, Checked checked, Slot& slot);

// The elements at `count` positions that are drawn with replacement: as many as differ.
// Preconditions: nothing is pending, x is finite; 1 <= count <= slot.capacity.
void SelectDrawn(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                 const RandomStream& stream, std::size_t count, Slot& slot);

}  // namespace sparfuse
