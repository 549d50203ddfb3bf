// Selects on a device in one streaming pass: what the sparsifiers that have kernels are built on.
//
// A scan collects the elements of x = gradient + residual whose key (the bits of |x|) reaches a
// bound, and sends some of them. Which is decided on the device, in the words of a ScanControl, so
// that no launch waits for one before it:
//
//   const DeviceInput input = BeginSelectOnDevice(...);
//   DeviceScan scan = PrepareScan(context, input, info, k, slot, {.wanted = k});  // control->lo
//   CollectOnDevice(context, scan);                                              // control->count
//   Send(context, scan, slot);                                        // or SendReaching
//
// What a sparsifier decides in between is a kernel of one block that reads and writes the control,
// launched with scan.active(). Kernels of a scan are in scan_kernels.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/device/launch.hpp"
#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/scan/corrected.hpp"
#include "core/sparsify/scan/scan.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// The x = gradient + residual that is selected from, on a device. As SelectInput: the addition is
// done by the first pass that streams over all of x, and never again.
struct DeviceInput {
  const float* gradient = nullptr;
  float* residual = nullptr;  // null without error feedback
  std::size_t n = 0;
  bool pending = false;

  // x, once nothing is pending.
  const float* x() const { return residual == nullptr ? gradient : residual; }
};

// Checks the arguments of SelectOnDevice (CheckSelectOnDevice). k: as there.
DeviceInput BeginSelectOnDevice(std::string_view sparsifier, const DeviceContext& context,
                                const SelectSource& source, double density, const TensorInfo& info,
                                const DeviceSlot& slot, std::size_t k);

// Sends all of x: density 1.
void SelectAllOnDevice(const DeviceContext& context, const DeviceInput& input,
                       const DeviceSlot& slot);

struct WarmWords;

// Tensors of at most so many elements are selected from by one block, which has x in registers.
inline constexpr std::size_t kOneBlock = 16384;

// Sends the k largest, bit for bit as SelectLargest does. warm: or null; decides the time taken,
// never the result. One launch for kOneBlock elements or fewer, else four, of which the last does
// nothing as a rule.
void SelectLargestOnDevice(const DeviceContext& context, const DeviceInput& input,
                           const TensorInfo& info, std::size_t k, WarmWords* warm,
                           const DeviceSlot& slot);

// --- How a pass is cut -------------------------------------------------------------------------

inline constexpr std::size_t kScanChunk = 4096;  // elements that a block has in registers at once
inline constexpr std::size_t kMostSpans = 1056;  // eight for each of 132 multiprocessors
inline constexpr std::size_t kScanBins = 2048;
inline constexpr int kScanShift = 12;  // of a key: bins of 2^-11 of the magnitude, over an octave

// Chunks are counted from the 16-byte line in which x begins, so that they are aligned; a block
// takes a span of neighbouring ones. Both follow from n and the address alone.
struct ScanPlan {
  std::size_t shift = 0;  // elements of the first chunk that lie before x
  std::size_t chunks = 0;
  std::size_t chunks_per_span = 0;
  std::size_t spans = 0;  // at most kMostSpans
};
ScanPlan PlanScan(const DeviceInput& input);

// --- What a scan has on the device -------------------------------------------------------------

// Candidates of one chunk, side by side in the arrays of candidates, in index order.
struct DeviceSegment {
  std::uint32_t offset = 0;  // beyond the arrays' capacity where they did not fit
  std::uint32_t count = 0;
  std::uint32_t selected = 0;  // scratch of what sends them
  std::uint32_t start = 0;
};

enum class SendMode : std::uint32_t {
  kLargest,   // the k largest
  kReaching,  // what reaches `cut`: of those the first `limit` by position
};

inline constexpr std::size_t kListRoom = std::size_t{1} << 16;
inline constexpr std::size_t kMostCounting = 128;  // blocks that look through all candidates
inline constexpr std::size_t kExactSpans = 256;
inline constexpr std::size_t kExactBins = 2048;

// Zero when a scan starts, but for `active` and what PrepareScan says.
struct ScanControl {
  std::uint32_t active;  // 0: nothing is selected (DeviceContext::only_if)
  std::uint32_t lo;     // candidates are the elements with key >= lo; more than infinity's is taken
                        // as infinity's
  std::uint32_t count;  // of them: exact, whether they were stored or not
  std::uint32_t warm;   // lo is from the step before
  // SendReaching: everything with key >= `key` is sent if that is `least` to `most` elements, else
  // the k largest. A key below lo counts as reached by more than `most`, and so
  // does any key where the candidates were not stored.
  std::uint32_t key;
  std::uint32_t least;
  std::uint32_t most;
  std::uint32_t first;     // of them only so many are sent, the first by position; 0: all
  std::uint32_t reaching;  // what SendReaching counted
  std::uint32_t decided;   // set by a kernel before: SendReaching does as Send
  // Send: what is sent.
  SendMode mode;
  std::uint32_t limit;
  std::uint64_t cut;  // CutOf a key, or with the index of the last tie that is sent
  // 1: the k largest are found by passes over all of x, because the candidates do not hold them.
  std::uint32_t exact;
  std::uint32_t recollect;  // of RecollectOnDevice

  std::uint32_t bins[kScanBins];  // of candidates: bin b holds lo + [b, b + 1) * 2^kScanShift, the
                                  // last one all above
  // 1: the key is an estimate, which may miss k by more than is tolerated. SendReaching then sends
  // the k largest and does not count this as a fallback or an overflow.
  std::uint32_t estimate_may_miss;

  // Scratch.
  std::uint32_t measured[kMostSpans];
  std::uint32_t listed;
  std::uint32_t ready;
  std::uint32_t counted[kMostCounting];
  std::uint32_t refined[kMostCounting];
  std::uint32_t exact_bins[3 * kExactBins];
  std::uint32_t exact_done[3 * kExactSpans];
  std::uint64_t exact_sums[kExactSpans];
  std::uint64_t sums[kMostSpans];
};

// Where to start looking for the k largest, of one tensor from step to step: as WarmBound. On the
// device, all zero at first.
struct WarmWords {
  std::uint32_t key;  // 0: none is known
  float last;         // k-th magnitude of the step before
  float margin;
  std::uint32_t pause;  // steps without a bound yet; doubles with each failure in a row
  std::uint32_t next_pause;
};

// The state of a sparsifier that remembers nothing else.
struct DeviceWarmState final : SparsifierState {
  explicit DeviceWarmState(Device device) : words(1, device, "the warm start of a selection") {}
  Buffer<WarmWords> words;
};
inline WarmWords* WarmWordsOf(SparsifierState* state) {
  return state == nullptr ? nullptr : static_cast<DeviceWarmState*>(state)->words.data();
}

// The order in which elements are selected: magnitude, then the lower index. No two are equal.
constexpr std::uint64_t OrderOf(std::uint32_t key, std::uint32_t index) {
  return std::uint64_t{key} << 32 | (0xffffffffu - index);
}
// Reached by everything with this key.
constexpr std::uint64_t CutOf(std::uint32_t key) { return std::uint64_t{key} << 32; }

struct DeviceScan {
  DeviceInput input;
  ScanPlan plan;
  std::size_t k = 0;
  ScanControl* control = nullptr;  // and all below: on the device
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
  std::size_t capacity = 0;           // of these
  DeviceSegment* segments = nullptr;  // [plan.chunks]
  std::uint64_t* list = nullptr;      // [kListRoom]
  SlotReport* report = nullptr;
  WarmWords* warm = nullptr;  // or null; learns from what is sent as the k largest

  // For the launches of this scan.
  const std::uint32_t* active() const { return &control->active; }
};

// --- Steps of a scan ---------------------------------------------------------------------------

struct ScanOptions {
  // Chooses control->lo from a sample so that at least `wanted` elements reach that key (but for
  // one case in a million), and not many more; 0: control->lo is `lo`.
  std::size_t wanted = 0;
  WarmWords* warm = nullptr;  // where it knows a bound, that is taken
  std::size_t capacity = 0;   // candidates that are stored; 0: CandidateCapacity(n, k)
  // Words of the caller that are zeroed in the same launch: flags for its own launches, zero too
  // where nothing is selected.
  std::uint32_t* own = nullptr;
  std::size_t own_size = 0;
  // What the control says at first: of `lo` without `wanted`. What `bound`, on the device, says is
  // `lo` and `key`; null: nothing.
  const std::uint32_t* bound = nullptr;
  std::uint32_t lo = 0;
  std::uint32_t key = 0;
  std::uint32_t least = 0;
  std::uint32_t most = 0;
  bool estimate_may_miss = false;
};

// Zeroes the control and finds a bound. One launch.
DeviceScan PrepareScan(const DeviceContext& context, const DeviceInput& input,
                       const TensorInfo& info, std::size_t k, const DeviceSlot& slot,
                       const ScanOptions& options);

// Of CollectOnDevice, where all of x is measured in the same pass. A measure is copied to the
// device; a thread has a Part of the elements of its block's span that it sees.
struct NoMeasure {
  struct Part {};
  SPARFUSE_DEVICE Part Begin() const { return {}; }
  // Once for each element, in a fixed order.
  SPARFUSE_DEVICE void Add(Part& /*part*/, float /*x*/, std::uint32_t /*key*/) const {}
  // By all threads of the block, after its span: writes the partial result of `span`, in
  // [0, plan.spans). Sums in a fixed order: Block::Sum.
  template <class Block>
  SPARFUSE_DEVICE void Store(Block& /*block*/, const Part& /*part*/, unsigned /*span*/) const {}
};

// The elements of x that reach control->lo, into the arrays of candidates; their number and their
// histogram; what is not finite, into the report. The pending addition is done, and nothing is
// pending any more. One launch. A measure of one's own: CollectWithMeasure, in
// collect_kernels.hpp.
void CollectOnDevice(const DeviceContext& context, DeviceScan& scan);

// The same once more where a kernel of the caller has asked for it (WantRecollected in
// scan_kernels.hpp). One launch, which does nothing as a rule.
void RecollectOnDevice(const DeviceContext& context, const DeviceScan& scan);

// Sends what control->mode says. Two launches, of which the second does nothing as a rule.
//   kLargest   (as PrepareScan leaves it) the k largest of x. Where the candidates are fewer than k
//              or were not stored, `fallbacks` is raised and passes over all of x find them.
//   kReaching  what reaches control->cut, control->limit elements at most. Precondition: that is
//              among stored candidates, and limit <= slot.capacity.
void Send(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot);

// Sends what reaches control->key if that is control->least to control->most elements, at least one
// and no more than the slot holds or was stored; else the k largest. Where it is none, `fallbacks`
// is raised, where it is more than the slot holds or was stored, `overflows`; at most one of the
// two. Two launches. Precondition: least and most are set.
void SendReaching(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot);

// For a pass that measures and collects nothing.
inline ScanOptions NothingCollected() {
  ScanOptions options;
  options.lo = kInfinityKey;
  options.capacity = 1;
  return options;
}

// How many candidates to collect so that what any threshold selects, if its count is k to within
// CountTolerance, is among them.
inline std::size_t NeededToCorrect(std::size_t n, std::size_t k) {
  return std::min(k + CountTolerance(k) + 1, n);
}

// For a scan after which SendReaching sends what is above an estimate if that is k to within
// CountTolerance, else the k largest.
inline ScanOptions Correcting(std::size_t n, std::size_t k, WarmWords* warm) {
  const std::size_t tolerance = CountTolerance(k);
  ScanOptions options;
  options.wanted = NeededToCorrect(n, k);
  options.warm = warm;
  options.capacity = CandidateCapacity(n, options.wanted);
  options.least = static_cast<std::uint32_t>(k - tolerance);
  options.most = static_cast<std::uint32_t>(k + tolerance);
  options.estimate_may_miss = true;
  return options;
}

// For a scan after which SendReaching sends everything that reaches a key, unless that is nothing
// or more than the slot holds.
inline ScanOptions Reaching(std::size_t n, std::size_t k, std::uint32_t key,
                            const DeviceSlot& slot) {
  ScanOptions options;
  options.lo = key;
  options.key = key;
  options.capacity = std::min(n, std::max(slot.capacity, CandidateCapacity(n, k)));
  options.least = 1;
  options.most = static_cast<std::uint32_t>(slot.capacity);
  return options;
}

// The same where the key is a word on the device.
inline ScanOptions Reaching(std::size_t n, std::size_t k, const std::uint32_t* key,
                            const DeviceSlot& slot) {
  ScanOptions options = Reaching(n, k, 0u, slot);
  options.bound = key;
  return options;
}

}  // namespace sparfuse
