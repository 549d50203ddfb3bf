// Selects on a device in one streaming pass. The sparsifiers with kernels are built on it.
//
// A scan collects the elements of x = gradient + residual whose key (the bits of |x|) reaches a
// bound, and sends some of them. The device decides which ones, in the words of a ScanControl, so
// that the host can launch all kernels without waiting:
//
//   const DeviceInput input = BeginSelectOnDevice(...);
//   DeviceScan scan = PrepareScan(context, input, info, k, slot, {.wanted = k});  // control->lo
//   CollectOnDevice(context, scan);                                              // control->count
//   Send(context, scan, slot);                                        // or SendReaching
//
// A sparsifier decides between these steps in a kernel of one block that reads and writes the
// control, launched with scan.active(). The kernels of a scan are in scan_kernels.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/device/launch.hpp"
#include "core/sparsify/device_selection.hpp"
#include "core/sparsify/scan/statistics.hpp"
#include "core/sparsify/scan_device/device_source.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

// Checks the arguments of SelectOnDevice (CheckSelectOnDevice, also for k) and returns the input.
DeviceInput BeginSelectOnDevice(std::string_view sparsifier, const DeviceContext& context,
                                const SelectSource& source, double density, const TensorInfo& info,
                                const DeviceSlot& slot, std::size_t k);

// Sends all of x: density 1.
void SelectAllOnDevice(const DeviceContext& context, const DeviceInput& input,
                       const DeviceSlot& slot);

// From tensors of at most so many elements one block selects, with x in its registers.
inline constexpr std::size_t kOneBlock = 16384;

// --- How a pass is cut -------------------------------------------------------------------------

inline constexpr std::size_t kScanChunk = 4096;  // elements that a block has in registers at once
inline constexpr std::size_t kMostSpans = 1056;  // eight for each of 132 multiprocessors
inline constexpr std::size_t kScanBins = 2048;
inline constexpr int kScanShift = 12;  // of a key: bins of 2^-11 of the magnitude, over an octave

// The division of x into chunks and spans. Chunks are counted from the 16-byte line in which x
// begins, so that they are aligned. A block takes a span of neighbouring chunks. Both follow from n
// and the address alone.
struct ScanPlan {
  std::size_t shift = 0;  // elements of the first chunk that lie before x
  std::size_t chunks = 0;
  std::size_t chunks_per_span = 0;
  std::size_t spans = 0;  // at most kMostSpans
};
ScanPlan PlanScan(const DeviceInput& input);

// --- The data of a scan on the device ----------------------------------------------------------

// The candidates of one chunk, side by side in the arrays of candidates, in index order.
struct DeviceSegment {
  std::uint32_t offset = 0;  // beyond the arrays' capacity if they did not fit
  std::uint32_t count = 0;
  std::uint32_t selected = 0;  // this and `start`: scratch of the kernel that sends them
  std::uint32_t start = 0;
};

enum class SendMode : std::uint32_t {
  kLargest,   // the k largest
  kReaching,  // of the elements that reach `cut`, the first `limit` by position
};

inline constexpr std::size_t kListRoom = std::size_t{1} << 16;
inline constexpr std::size_t kMostCounting = 128;  // blocks that look through all candidates
inline constexpr std::size_t kExactSpans = 256;
inline constexpr std::size_t kExactBins = 2048;

// The words by which the kernels of a scan decide. All are zero when a scan starts, except `active`
// and the words that PrepareScan sets.
struct ScanControl {
  std::uint32_t active;  // 0: nothing is selected (DeviceContext::only_if)
  std::uint32_t lo;      // candidates are the elements with key >= lo; a lo above kInfinityKey
                         // counts as kInfinityKey
  std::uint32_t count;   // the number of candidates: exact, whether they were stored or not
  std::uint32_t warm;    // 1: lo is from the step before
  // SendReaching sends the elements with key >= `key` if they are `least` to `most`, else the k
  // largest. A key below lo counts as reached by more than `most` elements; so does any key if the
  // candidates were not stored.
  std::uint32_t key;
  std::uint32_t least;
  std::uint32_t most;
  std::uint32_t first;     // only the first so many by position are sent; 0: all
  std::uint32_t reaching;  // the number of elements that SendReaching counted
  std::uint32_t decided;   // 1: an earlier kernel has decided, and SendReaching acts as Send
  // The elements that Send sends.
  SendMode mode;
  std::uint32_t limit;
  std::uint64_t cut;  // CutOf a key, or with the index of the last tie that is sent
  // 1: passes over all of x find the k largest, because the candidates do not contain them.
  std::uint32_t exact;
  std::uint32_t recollect;  // 1: RecollectOnDevice collects again

  std::uint32_t bins[kScanBins];  // histogram of candidates: bin b counts the keys in lo +
                                  // [b, b + 1) * 2^kScanShift, the last bin all keys above
  // 1: the key is an estimate, which may miss k by more than the tolerance. SendReaching then sends
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

// The bound for the k largest of one tensor, kept from step to step as in WarmBound. The words are
// on the device, all zero at first.
struct WarmWords {
  std::uint32_t key;  // 0: none is known
  float last;         // k-th magnitude of the step before
  float margin;
  std::uint32_t pause;  // steps still without a bound; doubles with each failure in a row
  std::uint32_t next_pause;
};

// The state of a sparsifier that remembers only WarmWords.
struct DeviceWarmState final : SparsifierState {
  explicit DeviceWarmState(Device device) : words(1, device, "the warm start of a selection") {}
  Buffer<WarmWords> words;
};
inline WarmWords* WarmWordsOf(SparsifierState* state) {
  return state == nullptr ? nullptr : static_cast<DeviceWarmState*>(state)->words.data();
}

// The rank order of elements: magnitude, then the lower index. No two elements are equal in it.
constexpr std::uint64_t OrderOf(std::uint32_t key, std::uint32_t index) {
  return std::uint64_t{key} << 32 | (0xffffffffu - index);
}
// The cut that every element with this key reaches.
constexpr std::uint64_t CutOf(std::uint32_t key) { return std::uint64_t{key} << 32; }

struct DeviceScan {
  DeviceInput input;
  ScanPlan plan;
  std::size_t k = 0;
  ScanControl* control = nullptr;  // this and all pointers below: on the device
  std::uint32_t* indices = nullptr;
  float* values = nullptr;
  std::size_t capacity = 0;           // of indices and values
  DeviceSegment* segments = nullptr;  // [plan.chunks]
  std::uint64_t* list = nullptr;      // [kListRoom]
  SlotReport* report = nullptr;
  WarmWords* warm = nullptr;  // or null; learns from a selection of the k largest

  // The only_if of this scan's launches.
  const std::uint32_t* active() const { return &control->active; }
};

// --- Steps of a scan ---------------------------------------------------------------------------

struct ScanOptions {
  // Elements that should reach control->lo, which is chosen from a sample: at least so many reach
  // it (but for one case in a million), and not many more. 0: control->lo is `lo`.
  std::size_t wanted = 0;
  WarmWords* warm = nullptr;  // its bound is used if it knows one
  std::size_t capacity = 0;   // candidates that are stored; 0: CandidateCapacity(n, k)
  // Words of the caller that the same launch zeroes, e.g. flags for its own launches. They are
  // zeroed also if nothing is selected.
  std::uint32_t* own = nullptr;
  std::size_t own_size = 0;
  // The initial words of the control; `lo` is used if `wanted` is 0. If `bound` is not null, its
  // word on the device replaces `lo` and `key`.
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

// A measure of CollectWithMeasure, which measures all of x in the pass that collects. The measure
// is copied to the device. Each thread has a Part, for the elements of its block's span that it
// sees.
struct NoMeasure {
  struct Part {};
  SPARFUSE_DEVICE Part Begin() const { return {}; }
  // Called once for each element, in a fixed order.
  SPARFUSE_DEVICE void Add(Part& /*part*/, float /*x*/, std::uint32_t /*key*/) const {}
  // Called by all threads of the block after its span. Writes the partial result of `span`, which
  // is in [0, plan.spans). Block::Sum adds in a fixed order.
  SPARFUSE_DEVICE void Store(auto& /*block*/, const Part& /*part*/, unsigned /*span*/) const {}
};

// Writes the elements of x that reach control->lo to the arrays of candidates, and their number and
// histogram to the control. Reports the first element that is not finite. Does the pending
// addition; afterwards nothing is pending. One launch. CollectWithMeasure in collect_kernels.hpp
// also measures.
void CollectOnDevice(const DeviceContext& context, DeviceScan& scan);

// Collects once more if a kernel of the caller has asked for it (WantRecollected in
// send_kernels.hpp). One launch, which does nothing as a rule.
void RecollectOnDevice(const DeviceContext& context, const DeviceScan& scan);

// Sends by control->mode. Two launches; the second does nothing as a rule.
//   kLargest   (PrepareScan's mode) the k largest of x. If the candidates are fewer than k or were
//              not stored, `fallbacks` is raised and passes over all of x find the k largest.
//   kReaching  the elements that reach control->cut, control->limit of them at most. Preconditions:
//              they are among stored candidates, and limit <= slot.capacity.
void Send(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot);

// Sends the elements that reach control->key if they are control->least to control->most, at least
// one, and no more than the slot holds or were stored; else the k largest. Raises `fallbacks` if
// there are none, `overflows` if there are more than the slot holds or were stored; at most one of
// the two. Two launches. Precondition: least and most are set.
void SendReaching(const DeviceContext& context, const DeviceScan& scan, const DeviceSlot& slot);

// Options for a pass that measures but collects nothing.
inline ScanOptions NothingCollected() {
  ScanOptions options;
  options.lo = kInfinityKey;
  options.capacity = 1;
  return options;
}

// The number of candidates to collect so that they include the selection of any threshold whose
// count is k to within CountTolerance.
inline std::size_t NeededToCorrect(std::size_t n, std::size_t k) {
  return std::min(k + CountTolerance(k) + 1, n);
}

// Options for a scan after which SendReaching sends the elements above an estimate if their number
// is k to within CountTolerance, else the k largest.
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

// Options for a scan after which SendReaching sends all elements that reach a key, unless there are
// none or more than the slot holds.
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

// Reaching with a key that is a word on the device.
inline ScanOptions Reaching(std::size_t n, std::size_t k, const std::uint32_t* key,
                            const DeviceSlot& slot) {
  ScanOptions options = Reaching(n, k, 0u, slot);
  options.bound = key;
  return options;
}

}  // namespace sparfuse
