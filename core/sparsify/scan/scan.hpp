// Streams once over a source: adds the residual, collects the elements above a bound and histograms
// their magnitudes. Holds the steps that the sparsifiers built on this scan share.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>

#include "core/device/kernel.hpp"
#include "core/sparsify/scan/simd/select_kernels.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// The source x = gradient + residual of a selection. Without error feedback x is the gradient.
// With error feedback, `residual` passes through these states. It leaves the first one once, and
// never returns to it:
//
//   pending   It holds the residual of the step before. The first pass that streams over all of x
//             adds the gradient, and no later pass adds again, so that nothing is rounded twice.
//             That pass is Collect, AddPending, SelectSmall or a sparsifier's own pass, which calls
//             BringOver before it and Added after it.
//   added     It holds x. If `updated` was given, `residual` now points there, and the memory given
//             as the residual has not been written. After an error `residual` is in this state,
//             because the search for the element that is not finite reads x.
//   cleared   It holds x, but zeros where stored candidates reach Candidates::cleared: the state
//             after a Collect with `clear_from`. Nothing may read x now. Restore leads back to
//             `added`; the functions that send candidates lead to `sent`. A Collect that could not
//             store them has gone back to `added` itself.
//   sent      It holds x, but zeros at the positions that the slot contains.
struct SelectInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // null without error feedback
  std::size_t n = 0;
  bool pending = false;
  float* updated = nullptr;  // receives x instead of the residual; or null

  // Marks the pending addition as done.
  void Added() {
    if (pending && updated != nullptr) residual = updated;
    pending = false;
  }
  // For a pass that adds in place: copies the residual to the memory that receives x.
  void BringOver() {
    if (pending && updated != nullptr) {
      std::copy_n(residual, n, updated);
      residual = updated;
    }
    updated = nullptr;
  }

  // x, if nothing is pending.
  const float* x() const { return residual == nullptr ? gradient : residual; }
  // x at any time.
  float At(std::size_t i) const { return pending ? gradient[i] + residual[i] : x()[i]; }
};

// The key of an element (select_kernels.hpp).
SPARFUSE_HOST_DEVICE std::uint32_t KeyOf(float x) {
  return std::bit_cast<std::uint32_t>(x) & kAbsMask;
}

// Checks the arguments of Sparsifier::Select except the slot's room, and counts the selection.
// Throws Error{kConfig}; Error{kUnsupported} for memory on a device.
SelectInput BeginSelect(std::string_view sparsifier, const SelectContext& context,
                        const SelectSource& source, double density, const TensorInfo& info,
                        const Slot& slot);

// Throws Error{kNumeric} naming the tensor, the step and the first element that is not finite.
[[noreturn]] void ThrowNotFinite(const SelectInput& input, const TensorInfo& info);

// Sends all of x: density 1.
void SelectAll(const SelectContext& context, SelectInput& input, const TensorInfo& info,
               Slot& slot);

// Adds the gradient to the residual if that is pending, and checks that x is finite, in one pass.
void AddPending(const SelectContext& context, SelectInput& input, const TensorInfo& info);

// Throws as AddPending if the gradient is not finite. For a check before the addition.
void RequireFinite(ThreadPool& pool, std::span<const float> gradient, const TensorInfo& info);

// Histogram of keys: bin b holds [lo + b * 2^shift, lo + (b + 1) * 2^shift), the last bin the rest.
inline constexpr std::size_t kBins = 4096;
inline constexpr int kFineShift = 12;  // bins span two octaves above lo

// Candidates of one chunk that lie side by side in the candidate arrays.
struct CandidateSegment {
  std::size_t offset = 0;
  std::uint32_t count = 0;
  std::uint32_t in_bin = 0;  // this and `above`: scratch of the selection among candidates
  std::uint32_t above = 0;
};

struct CandidateChunk {
  CandidateSegment* segments = nullptr;
  std::size_t segment_count = 0;

  std::span<CandidateSegment> runs() const { return {segments, segment_count}; }
};

inline constexpr std::uint32_t kNoKey = 0xffffffffu;  // above every key

// The elements of x with key >= lo. Their count is exact. If `stored`, the arrays hold the
// elements, in index order within a chunk and chunks in index order; otherwise only the histogram
// is filled.
struct Candidates {
  std::uint32_t lo = 0;
  int shift = 0;
  std::size_t count = 0;
  bool stored = false;
  std::uint32_t largest = 0;                 // key of the largest
  std::uint32_t cleared = kNoKey;            // stored with key >= cleared: 0 in the residual
  const std::uint32_t* histogram = nullptr;  // [kBins + 1]
  std::uint32_t* indices = nullptr;          // [room]
  float* values = nullptr;                   // [room]
  std::size_t room = 0;                      // runs do not fill it: workers take it in pieces
  std::span<CandidateChunk> chunks;          // each of at most kMostRuns segments
  // A lower bound of the number of elements that reach lo - 1, if so many tie at the key lo - 1
  // that they were not collected. Else 0.
  std::size_t ties_below = 0;

  // The runs of all chunks, in index order.
  auto runs() const {
    return chunks | std::views::transform(&CandidateChunk::runs) | std::views::join;
  }
};

// The largest number of candidates that are stored for a selection of k elements.
inline std::size_t CandidateCapacity(std::size_t n, std::size_t k) {
  const std::size_t room = 2 * k + 65536;
  return room < n ? room : n;
}

struct Statistics;

// Collects up to `capacity` candidates; if there are more, they are counted but not stored. The
// candidates are valid until the next Collect on the same workspace. Throws Error{kNumeric}. If
// `statistics` is given (statistics.hpp), measures all of x in the same pass.
//
//   clear_from   a guess of the smallest key that will be sent. Stored candidates that reach it are
//                zeroed in the residual while their block is in cache. The residual is right again
//                only after Restore, or after one of the functions that send candidates.
Candidates Collect(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   std::uint32_t lo, int shift, std::size_t capacity,
                   Statistics* statistics = nullptr, std::uint32_t clear_from = kNoKey);

// Whether more than `many` elements of x reach the key. Reads x from its start, and stops as soon
// as the answer is known. Precondition: nothing is pending.
bool MoreReach(const SelectInput& input, std::uint32_t key, std::size_t many);

// Of the elements [begin, count) of a run, zeroes in the residual those that reach `key`, and
// restores the others.
void Settle(const SelectInput& input, const Candidates& candidates, const CandidateSegment& run,
            std::uint32_t key, std::size_t begin = 0);

// Puts all candidates back into the residual.
void Restore(const SelectInput& input, const Candidates& candidates);

// Moves the first `limit` candidates in index order from the residual into the slot.
// Preconditions: stored; limit <= slot.capacity.
void TakeFirst(const SelectInput& input, const Candidates& candidates, std::size_t limit,
               Slot& slot);

// A key that cuts a set: `count` of its keys are >= key.
struct Cut {
  std::uint32_t key = 0;
  std::size_t count = 0;
};

// The cut with base <= key < base + 2^bits and the smallest count that is at least `rank`. The
// count is exactly `rank` unless equal keys straddle it: then `key` is theirs. With `coarse`, only
// cuts at multiples of 2^coarse from base are considered. Precondition: `rank` keys are >= base.
Cut FindCut(const SelectKernels& kernels, std::span<const std::uint32_t> keys, std::size_t rank,
            std::uint32_t base, int bits, int coarse = 0);

// The number of elements that a pool thread takes at once (1 MB), and the size below which one
// thread does all the work.
inline constexpr std::size_t kChunk = 64 * kBlock;
inline constexpr std::size_t kParallelElements = 200'000;
inline std::size_t ChunkSize(std::size_t n) { return n < kParallelElements ? n : kChunk; }
// Of a chunk: the candidates of a block lie in two runs at most.
inline constexpr std::size_t kMostRuns = 2 * (kChunk / kBlock);

template <class T>
std::span<T> WorkspaceArray(Workspace& workspace, WorkspaceUse use, std::size_t size) {
  const std::span<std::byte> bytes = workspace.Get(use, size * sizeof(T));
  return {reinterpret_cast<T*>(bytes.data()), size};
}

}  // namespace sparfuse
