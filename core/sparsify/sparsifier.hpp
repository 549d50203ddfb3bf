// A Sparsifier selects the elements of a gradient to send.
//
// It knows nothing of ranks, plans, files or clocks: exchange is the collective's work, time is the
// engine's. Error feedback is fused into the selection where the caller passes a residual, because
// a separate pass over memory would cost as much as the selection itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// k = max(1, trunc(density * n)), computed in double. density in (0, 1], n >= 1.
inline std::size_t KeptCount(std::size_t n, double density) {
  const auto k = static_cast<std::size_t>(static_cast<double>(n) * density);
  return std::clamp<std::size_t>(k, 1, n);
}

// Elements a slot should hold for a tensor of n elements: max(4k, k + 1024), at most n; n where the
// sparsifier's count is unbounded.
inline std::size_t SlotCapacity(std::size_t n, double density, bool unbounded_count = false) {
  if (unbounded_count) return n;
  const std::size_t k = KeptCount(n, density);
  return std::min(n, std::max(4 * k, k + 1024));
}

// Where a selection goes. values[i] belongs at indices[i]; indices are strictly increasing and
// relative to the start of the source. Filled up to `count`; the arrays have room for `capacity`.
struct Slot {
  DeviceSpan<std::uint32_t> indices;
  DeviceSpan<float> values;
  std::size_t capacity = 0;
  std::size_t count = 0;
};

// What is selected from: x = gradient + residual (the residual may be absent: x = gradient).
//   gradient  [n] float32, not modified.
//   residual  [n] float32 or size 0. Overwritten: x with the selected entries zeroed, so that
//             sent + new residual = gradient + old residual, bit for bit in x.
//   updated   [n] float32 or size 0, on the host. Where given it is overwritten so and `residual`
//             is left as it was: an x that is refused has changed nothing. Needs a residual, and
//             a sparsifier that SelectsApart().
struct SelectSource {
  DeviceSpan<const float> gradient;
  DeviceSpan<float> residual;
  DeviceSpan<float> updated = {};
};

struct TensorInfo {
  std::uint32_t id = 0;   // position in ready order; keys random streams
  std::string_view name;  // named by errors
  std::span<const std::int64_t> shape;
  std::uint64_t step = 0;
};

// Counted over the life of a rank; a step's counts are differences.
struct SelectCounters {
  std::uint64_t selections = 0;
  // Exact top-k instead of a threshold: what the threshold kept did not fit the slot.
  std::uint64_t overflows = 0;
  std::uint64_t fallbacks = 0;   // empty or non-finite threshold, or a failed speculation
  std::uint64_t candidates = 0;  // elements that reached a bound, over all passes

  SelectCounters& operator+=(const SelectCounters& other) {
    selections += other.selections;
    overflows += other.overflows;
    fallbacks += other.fallbacks;
    candidates += other.candidates;
    return *this;
  }
};

// The arrays of a Workspace. One function's are free again when it returns, except the candidates
// of a scan.
enum WorkspaceUse : std::size_t {
  kUseIndices,  // candidates
  kUseValues,
  kUseSegments,
  kUseHistograms,
  kUseOffsets,
  kUseChunkParts,  // what is measured, counted or sent of each chunk of a tensor
  kUseKeys,        // of candidates, or of elements that are looked at
  kUseBinKeys,     // of the candidates in one bin
  kUseEmissions,   // where runs of candidates go in the slot
  kUseSample,      // of a tensor, or a bitmap of its positions
  kUseEnergies,    // of blocks of a tensor
  kUseBlockOrder,
  kUseFibres,  // what each thread has of its own, and the arrays of that
  kUseFibreColumns,
  kUseFibreValues,
  kUseUnmergedIndices,  // what blocks of fibres keep
  kUseUnmergedValues,
  kWorkspaceUses
};

// Scratch memory shared by the selections of one lane, grown on demand and kept.
class Workspace {
 public:
  // At least `bytes` of 64-byte aligned host memory, contents undefined. Valid until the next call
  // with the same `use`.
  std::span<std::byte> Get(WorkspaceUse use, std::size_t bytes);

 private:
  Buffer<std::byte> buffers_[kWorkspaceUses];
};

struct SelectContext {
  ThreadPool* pool = nullptr;          // never null on the host
  Workspace* workspace = nullptr;      // never null
  SelectCounters* counters = nullptr;  // never null
  Stream stream;
};

// What a sparsifier remembers of one tensor between steps (a threshold, a stage count).
class SparsifierState {
 public:
  virtual ~SparsifierState() = default;
};

class Sparsifier {
 public:
  virtual ~Sparsifier() = default;

  virtual std::string_view name() const noexcept = 0;

  // Null for a stateless sparsifier. n: elements of the tensor.
  virtual std::unique_ptr<SparsifierState> MakeState(std::size_t n) const;

  // Elements that Select keeps of a tensor of n elements and this shape ({}: one dimension):
  // exactly so where the descriptor's count is exact, else the most that it aims at. A slot must
  // hold them.
  virtual std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                            double density) const;

  // Elements that it selects together, a tensor being cut into as many from its first one on. 1:
  // each by itself.
  virtual std::size_t block() const noexcept { return 1; }

  // Of each run of so many elements, cut from the first one on, the last run being shorter, it
  // keeps KeptCount: a coding need not say how many. 0: it keeps what it keeps of the whole.
  virtual std::size_t chunk() const noexcept { return 0; }

  // Selects into `slot`.
  //
  //   density   in (0, 1]; 1 sends everything.
  //   state     what MakeState(n) returned for this tensor, or null.
  //
  // Determinism: equal inputs, state history and seed give equal slots, whatever the pool's size.
  // Guarantee:   a source with a non-zero x sends at least one element; never more than capacity.
  // Errors:      Error{kNumeric} naming the tensor if x has a NaN or an infinity (the residual is
  //              then unspecified; but see refuses_unsent); Error{kConfig} if n == 0 or n >= 2^32.
  // Cost:        O(n), no allocation after the first call for a given n.
  virtual void Select(const SelectContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state, Slot& slot) const = 0;

  // Select takes a SelectSource::updated.
  virtual bool SelectsApart() const noexcept { return false; }

  // The same on a device, in the order of context.stream: returns before it is done. gradient,
  // residual and slot are there; the count stays there, in slot.report, which is zero before.
  //
  //   state     what MakeDeviceState(n, device) returned for this tensor, or null.
  //
  // Selects what Select selects, bit for bit, where the count is exact or the threshold is given;
  // else with a threshold within 1e-6 of Select's. Deterministic, whatever the device.
  // Errors:      as Select's for its arguments; an x that is not finite is in the report.
  // Cost:        no allocation after the first call for a given n and no wait for the device;
  //              but where SelectsOnDevice() is false: SelectStaged (device_selection.hpp).
  virtual void SelectOnDevice(const DeviceContext& context, const SelectSource& source,
                              double density, const TensorInfo& info, SparsifierState* state,
                              DeviceSlot& slot) const;
  virtual std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const;
  // There are kernels for devices.
  virtual bool SelectsOnDevice() const noexcept { return false; }
};

// How many elements a sparsifier keeps, for the ModelEngine: count ~ Count * lognormal, exact when
// both are 0. Mean and deviation of log(count / Count), Count being what Sparsifier::Count says.
// Where a descriptor does not say otherwise: at density 0.01 with error feedback, on the gradients
// of digits-resnet and text-gpt in their first steps (the test WorkloadGradients measures it).
struct SelectionModel {
  double mean = 0;
  double sigma = 0;
};

struct SparsifierDescriptor {
  // Stable: results are keyed by it. "name" is the canonical form of a method, "name@origin" the
  // form that a published implementation runs where that differs.
  std::string_view name;
  std::string_view paper;
  int revision;  // raised when results may change; part of what makes a stored cell current
  bool exact_count;
  bool index_shared = false;  // every rank selects the same indices in a step
  SelectionModel selection_model = {};
  // The largest delta for which E|x - C(x)|^2 <= (1 - delta) |x|^2 is promised for every x of this
  // shape (in expectation over the method's own random numbers); 0 where nothing is promised.
  double (*contraction)(std::span<const std::int64_t> shape, double density);
  std::string_view deviations = "";  // "" or what differs from the paper, one sentence each
  std::vector<OptionSpec> options = {};
  std::function<std::unique_ptr<Sparsifier>(const Options& resolved, std::uint64_t seed)> make;
  std::vector<std::string_view> aliases = {};  // other names that find it; never stored
  // Counts may lie anywhere up to n, as a rule or on data that the method does not suit: only a
  // slot of n elements shows what it selects. In a smaller one an overflow becomes an exact top-k.
  bool unbounded_count = false;
  // It keeps, to a few, what reaches a threshold that it finds from x: one that a period may be set
  // for (reused_threshold.hpp). Not so where the threshold is given or the position decides. An
  // exact count is exact no more between its steps, so that a period is not its default.
  bool reusable_threshold = false;
  // Without a residual, an x that is not finite may be selected from on the host where what is not
  // finite is not sent. (With one, what is not sent is added to the next x.)
  bool refuses_unsent = true;
};

inline std::size_t SlotCapacityFor(const SparsifierDescriptor& descriptor, std::size_t n,
                                   double density) {
  return SlotCapacity(n, density, descriptor.unbounded_count);
}

// The same for a tensor whose shape is known.
inline std::size_t SlotCapacityFor(const SparsifierDescriptor& descriptor,
                                   const Sparsifier& sparsifier, std::size_t n,
                                   std::span<const std::int64_t> shape, double density) {
  return std::max(SlotCapacityFor(descriptor, n, density), sparsifier.Count(n, shape, density));
}

// k / n: what an exact top-k and an unbiased choice of k elements promise.
double KeptFraction(std::span<const std::int64_t> shape, double density);

// Every sparsifier of core, in the order in which `sparfuse list sparsifiers` prints them.
std::span<const SparsifierDescriptor> Sparsifiers();

// By name or alias. Throws Error{kConfig} naming the nearest known name.
const SparsifierDescriptor& FindSparsifier(std::string_view name);

// For errors: the tensor's name, id and step.
std::string Describe(const TensorInfo& info);

// Checks what is selected from. Throws Error{kConfig}.
void CheckSelectArguments(std::string_view sparsifier, const SelectSource& source, double density,
                          const TensorInfo& info);

// Throws Error{kConfig} where the slot has no room for k elements.
void RequireRoom(std::string_view sparsifier, const TensorInfo& info, const Slot& slot,
                 std::size_t k);
void RequireRoom(std::string_view sparsifier, const TensorInfo& info, std::size_t capacity,
                 std::size_t k);

}  // namespace sparfuse
