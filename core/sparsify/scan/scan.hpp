// Streams once over a source: adds the residual, collects the elements above a bound and histograms
// their magnitudes; and holds what the sparsifiers that are built on it share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/sparsify/scan/simd/select_kernels.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// The x = gradient + residual that is selected from. Without error feedback it is the gradient.
// With it, `residual` goes through these states, each but for the first left once:
//
//   pending   it is the residual of before. The first pass that streams over all of x adds, and
//             none does again, so that nothing is rounded twice: Collect, AddPending, SelectSmall,
//             or a sparsifier's own pass, which calls BringOver before and Added after it.
//   added     it is x. Where `updated` was given, it is that memory now, and what was given as the
//             residual has not been written to. An error leaves it here: x is what is looked at for
//             what is not finite.
//   cleared   it is x but for zeros where stored candidates reach Candidates::cleared, which a
//             Collect with `clear_from` leaves. Nothing may read x here: Restore leads back to
//             `added`, and what sends candidates to `sent`. A Collect that could not store them has
//             gone back to `added` itself.
//   sent      it is x but for zeros where elements are in the slot.
struct SelectInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // null without error feedback
  std::size_t n = 0;
  bool pending = false;
  float* updated = nullptr;  // where x goes, instead of over the residual; or null

  // What was pending has been added.
  void Added() {
    if (pending && updated != nullptr) residual = updated;
    pending = false;
  }
  // For a pass that adds in place: brings the residual to where x goes.
  void BringOver() {
    if (pending && updated != nullptr) {
      std::copy_n(residual, n, updated);
      residual = updated;
    }
    updated = nullptr;
  }

  // x, once nothing is pending.
  const float* x() const { return residual == nullptr ? gradient : residual; }
  // x at any time.
  float At(std::size_t i) const { return pending ? gradient[i] + residual[i] : x()[i]; }
};

// Checks the arguments of Sparsifier::Select, but for the slot's room, and counts the selection.
// Throws Error{kConfig}; Error{kUnsupported} for memory on a device.
SelectInput BeginSelect(std::string_view sparsifier, const SelectContext& context,
                        const SelectSource& source, double density, const TensorInfo& info,
                        const Slot& slot);

// Throws Error{kNumeric} naming the tensor, the step and the first element that is not finite.
[[noreturn]] void ThrowNotFinite(const SelectInput& input, const TensorInfo& info);

// Sends all of x: density 1.
void SelectAll(const SelectContext& context, SelectInput& input, const TensorInfo& info,
               Slot& slot);

// residual += gradient where that is pending, and the check that x is finite, in one pass.
void AddPending(const SelectContext& context, SelectInput& input, const TensorInfo& info);

// Throws as AddPending for a gradient that is not finite, before anything is added to it.
void RequireFinite(ThreadPool& pool, std::span<const float> gradient, const TensorInfo& info);

// Histogram of keys: bin b holds [lo + b * 2^shift, lo + (b + 1) * 2^shift), the last bin the rest.
inline constexpr std::size_t kBins = 4096;
inline constexpr int kFineShift = 12;  // bins span two octaves above lo

// Candidates of one chunk that lie side by side in the candidate arrays.
struct CandidateSegment {
  std::size_t offset = 0;
  std::uint32_t count = 0;
  std::uint32_t in_bin = 0;  // scratch of the selection among candidates
  std::uint32_t above = 0;
};

struct CandidateChunk {
  CandidateSegment* segments = nullptr;
  std::size_t segment_count = 0;
};

inline constexpr std::uint32_t kNoKey = 0xffffffffu;  // above every key

// The elements of x with key >= lo. Their count is exact; if `stored` the elements themselves are
// there, in index order within a chunk, chunks in index order, and otherwise the histogram.
struct Candidates {
  std::uint32_t lo = 0;
  int shift = 0;
  std::size_t count = 0;
  bool stored = false;
  std::uint32_t largest = 0;                 // key of the largest
  std::uint32_t cleared = kNoKey;            // stored with key >= cleared: 0 in the residual
  const std::uint32_t* histogram = nullptr;  // [kBins + 1]
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
  std::span<CandidateChunk> chunks;
  // Set where so many elements tie at the key lo - 1 that they were not collected: a lower bound of
  // the number of elements that reach lo - 1. Else 0.
  std::size_t ties_below = 0;
};

// Most candidates that are stored for a selection of k.
inline std::size_t CandidateCapacity(std::size_t n, std::size_t k) {
  const std::size_t room = 2 * k + 65536;
  return room < n ? room : n;
}

struct Statistics;

// Collects up to `capacity` candidates; if there are more they are counted and not stored. Valid
// until the next Collect on the same workspace. Throws Error{kNumeric}. Where `statistics` is given
// (statistics.hpp), measures all of x in the same pass.
//
//   clear_from   a guess of the key from which candidates will be sent. Stored candidates that
//                reach it are zeroed in the residual while their block is in cache: x is what it
//                was again only after Restore, or after one of the functions that send candidates.
Candidates Collect(const SelectContext& context, SelectInput& input, const TensorInfo& info,
                   std::uint32_t lo, int shift, std::size_t capacity,
                   Statistics* statistics = nullptr, std::uint32_t clear_from = kNoKey);

// Whether more than `many` elements of x reach the key. Reads x from its start, and no more of it
// than that takes. Precondition: nothing is pending.
bool MoreReach(const SelectInput& input, std::uint32_t key, std::size_t many);

// Leaves zero in the residual exactly those candidates of a run, the elements [begin, count) of it,
// that reach `key`.
void Settle(const SelectInput& input, const Candidates& candidates, const CandidateSegment& run,
            std::uint32_t key, std::size_t begin = 0);

// Puts all candidates back into the residual.
void Restore(const SelectInput& input, const Candidates& candidates);

// The first `limit` candidates in index order, into the slot and out of the residual.
// Preconditions: stored; limit <= slot.capacity.
void TakeFirst(const SelectInput& input, const Candidates& candidates, std::size_t limit,
               Slot& slot);

// A key that cuts a set: `count` of its keys are >= key.
struct Cut {
  std::uint32_t key = 0;
  std::size_t count = 0;
};

// The cut of base <= key < base + 2^bits with the fewest keys that is at least `rank`. It is
// exactly `rank`, unless equal keys straddle it: then `key` is theirs. Precondition: `rank` keys
// are >= base. With `coarse` only the keys at multiples of 2^coarse from base are looked at.
Cut FindCut(const SelectKernels& kernels, std::span<const std::uint32_t> keys, std::size_t rank,
            std::uint32_t base, int bits, int coarse = 0);

// Elements a pool thread takes at once (1 MB), and the size below which one thread does it all.
inline constexpr std::size_t kChunk = 64 * kBlock;
inline constexpr std::size_t kParallelElements = 200'000;
inline std::size_t ChunkSize(std::size_t n) { return n < kParallelElements ? n : kChunk; }

template <class T>
std::span<T> WorkspaceArray(Workspace& workspace, WorkspaceUse use, std::size_t size) {
  const std::span<std::byte> bytes = workspace.Get(use, size * sizeof(T));
  return {reinterpret_cast<T*>(bytes.data()), size};
}

}  // namespace sparfuse
