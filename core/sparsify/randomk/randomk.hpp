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

// Moves the elements whose bits are set, or with `inverted` the others, from the residual into the
// slot, in one pass over x, or, where x is known to be finite, over what is sent.
//
//   unchecked  where given, adds what is pending and throws Error{kNumeric} naming this tensor if
//              x is not finite, in the same pass. Null: nothing is pending, and x has been checked.
//
// Precondition: the slot has room for them.
void TakeBitmap(const SelectContext& context, SelectInput& input,
                std::span<const std::uint64_t> bitmap, bool inverted, const TensorInfo* unchecked,
                Slot& slot);

// Exactly k elements, every set of k equally likely. Above half, the elements that are not sent are
// drawn. `unchecked` as above. Preconditions: 1 <= k < n; k <= slot.capacity.
void SelectRandom(const SelectContext& context, SelectInput& input, const RandomStream& stream,
                  std::size_t k, Slot& slot, const TensorInfo* unchecked = nullptr);

// The elements at `count` positions that are drawn with replacement: as many as differ.
// Preconditions: nothing is pending; 1 <= count <= slot.capacity.
void SelectDrawn(const SelectContext& context, SelectInput& input, const RandomStream& stream,
                 std::size_t count, Slot& slot);

}  // namespace sparfuse
