// Declares Sparsifier, which selects the elements of a gradient to send.
//
// A sparsifier knows nothing of ranks, plans, files or clocks: the collective exchanges, the engine
// keeps time. If the caller passes a residual, error feedback is fused into the selection, because
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
#include "core/base/state_numbers.hpp"
#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// k = max(1, trunc(density * n)), computed in double. density in (0, 1], n >= 1.
inline std::size_t KeptCount(std::size_t n, double density) {
  const auto k = static_cast<std::size_t>(static_cast<double>(n) * density);
  return std::clamp<std::size_t>(k, 1, n);
}

// The capacity that a slot should have for a tensor of n elements: max(4k, k + 1024), at most n. It
// is n if the sparsifier's count is unbounded.
inline std::size_t SlotCapacity(std::size_t n, double density, bool unbounded_count = false) {
  if (unbounded_count) return n;
  const std::size_t k = KeptCount(n, density);
  return std::min(n, std::max(4 * k, k + 1024));
}

// The output of a selection. values[i] belongs at indices[i]; indices are strictly increasing and
// relative to the start of the source. The arrays are filled up to `count` and have room for
// `capacity` elements.
struct Slot {
  DeviceSpan<std::uint32_t> indices;
  DeviceSpan<float> values;
  std::size_t capacity = 0;
  std::size_t count = 0;
};

// The input of a selection: x = gradient + residual, or x = gradient without a residual.
//   gradient  [n] float32, not modified.
//   residual  [n] float32 or size 0. Overwritten with x, whose selected entries are zeroed, so that
//             sent + new residual = gradient + old residual, bit for bit in x.
//   updated   [n] float32 or size 0, on the host. If given, it receives the new residual and
//             `residual` stays unchanged, so that an x that is refused has changed nothing. It
//             needs a residual, and a sparsifier whose SelectsApart() is true.
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

// Counts over the life of a rank; the counts of one step are differences.
struct SelectCounters {
  std::uint64_t selections = 0;
  // Exact top-k instead of a threshold, because the threshold's elements did not fit the slot.
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

// The arrays of a Workspace. The arrays that a function uses are free again when it returns, except
// the candidates of a scan.
enum WorkspaceUse : std::size_t {
  kUseIndices,  // candidates
  kUseValues,
  kUseSegments,
  kUseHistograms,
  kUseOffsets,
  kUseShares,      // the part of the candidate arrays that each worker fills
  kUseChunkParts,  // measures, counts or sent elements of each chunk of a tensor
  kUseKeys,        // keys of candidates, or of elements that are examined
  kUseBinKeys,     // keys of the candidates in one bin
  kUseEmissions,   // positions in the slot of the runs of candidates
  kUseSample,      // a sample of a tensor, or a bitmap of its positions
  kUseEnergies,    // energies of the blocks of a tensor
  kUseBlockOrder,
  kUseFibres,  // the private data of each thread, and its arrays
  kUseFibreColumns,
  kUseFibreValues,
  kUseUnmergedIndices,  // the elements that blocks of fibres keep
  kUseUnmergedValues,
  kWorkspaceUses
};

// Scratch memory shared by the selections of one lane, grown on demand and kept.
class Workspace {
 public:
  // Returns at least `bytes` of 64-byte aligned host memory, contents undefined. The memory is
  // valid until the next call with the same `use`.
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

// The memory of a sparsifier for one tensor between steps (a threshold, a stage count).
class SparsifierState {
 public:
  virtual ~SparsifierState() = default;
  // Gives or takes the memory that later selections depend on. Nothing by default: a state that
  // only makes selections faster, or one on a device.
  virtual void Exchange(StateNumbers& /*numbers*/) {}
};

class Sparsifier {
 public:
  virtual ~Sparsifier() = default;

  virtual std::string_view name() const noexcept = 0;

  // Returns null for a stateless sparsifier. n: elements of the tensor.
  virtual std::unique_ptr<SparsifierState> MakeState(std::size_t n) const;

  // The number of elements that Select keeps of a tensor of n elements and this shape ({}: one
  // dimension). It is exact if the descriptor's count is exact, else it is the largest number that
  // Select aims at. A slot must have room for so many.
  virtual std::size_t Count(std::size_t n, std::span<const std::int64_t> shape,
                            double density) const;

  // The number of consecutive elements, counted from the tensor's first one, that are selected
  // together. 1: each element is selected by itself.
  virtual std::size_t block() const noexcept { return 1; }

  // The length of runs, cut from the tensor's first element on; Select keeps KeptCount elements of
  // each run. The last run may be shorter. A coding need not transmit the counts of runs. 0: the
  // tensor is not cut into runs.
  virtual std::size_t chunk() const noexcept { return 0; }

  // Selects elements of the source into `slot`.
  //
  //   density   in (0, 1]; 1 sends everything.
  //   state     the result of MakeState(n) for this tensor, or null.
  //
  // Determinism: equal inputs, state history and seed give equal slots, whatever the pool's size.
  // Guarantee:   a source with a non-zero x sends at least one element; never more than capacity.
  // Errors:      Error{kNumeric} naming the tensor if x has a NaN or an infinity (the residual is
  //              then unspecified; but see refuses_unsent); Error{kConfig} if n == 0 or n >= 2^32.
  // Cost:        O(n), no allocation after the first call for a given n.
  virtual void Select(const SelectContext& context, const SelectSource& source, double density,
                      const TensorInfo& info, SparsifierState* state, Slot& slot) const = 0;

  // Whether Select accepts a SelectSource::updated.
  virtual bool SelectsApart() const noexcept { return false; }

  // Selects on a device, in the order of context.stream, and returns before the selection is done.
  // gradient, residual and slot are on the device. The count stays there too, in slot.report, which
  // must be zero before.
  //
  //   state     the result of MakeDeviceState(n, device) for this tensor, or null.
  //
  // The selection equals Select's bit for bit if the count is exact or the threshold is given;
  // otherwise its threshold is within 1e-6 of Select's. Deterministic, whatever the device.
  // Errors:      for its arguments as Select; the report says if x is not finite.
  // Cost:        no allocation after the first call for a given n and no wait for the device;
  //              if SelectsOnDevice() is false, SelectStaged (device_selection.hpp) does the work.
  virtual void SelectOnDevice(const DeviceContext& context, const SelectSource& source,
                              double density, const TensorInfo& info, SparsifierState* state,
                              DeviceSlot& slot) const;
  virtual std::unique_ptr<SparsifierState> MakeDeviceState(std::size_t n, Device device) const;
  // Whether the sparsifier has kernels for devices.
  virtual bool SelectsOnDevice() const noexcept { return false; }
};

// Models for the ModelEngine how many elements a sparsifier keeps: count ~ Count * lognormal, where
// Count is Sparsifier::Count. The members are mean and deviation of log(count / Count); the count
// is exact if both are 0. Unless a descriptor says otherwise, they hold at density 0.01 with error
// feedback, on the gradients of digits-resnet and text-gpt in their first steps (the test
// WorkloadGradients measures them).
struct SelectionModel {
  double mean = 0;
  double sigma = 0;
};

struct SparsifierDescriptor {
  // The key of stored results, which never changes. "name" is the canonical form of a method,
  // "name@origin" the form that a published implementation runs, if it differs.
  std::string_view name;
  std::string_view paper;
  // Raised when results may change: a stored cell of another one is not current.
  int revision = 1;
  bool exact_count = false;
  bool index_shared = false;  // every rank selects the same indices in a step
  SelectionModel selection_model = {};
  // The largest delta for which the method promises E|x - C(x)|^2 <= (1 - delta) |x|^2 for every x
  // of this shape (in expectation over the method's own random numbers); 0 without a promise.
  double (*contraction)(std::span<const std::int64_t> shape, double density);
  std::string_view deviations = "";  // "" or the differences from the paper, one sentence each
  std::vector<OptionSpec> options = {};
  std::function<std::unique_ptr<Sparsifier>(const Options& resolved, std::uint64_t seed)> make;
  std::vector<std::string_view> aliases = {};  // other names that find it; never stored
  // Whether counts may lie anywhere up to n, as a rule or on data that the method does not suit.
  // Only a slot of n elements holds every selection; in a smaller one an overflow becomes an exact
  // top-k.
  bool unbounded_count = false;
  // Whether a period may be set (reused_threshold.hpp): the method finds a threshold from x and
  // keeps the elements that reach it, but for a few. False if the threshold is given or the
  // position decides. Between estimates an exact count is no longer exact, so a period is not the
  // default.
  bool reusable_threshold = false;
  // Whether Select refuses non-finite elements that it does not send. If false, it accepts them on
  // the host without a residual. (With a residual, unsent elements are added to the next x.)
  bool refuses_unsent = true;
};

inline std::size_t SlotCapacityFor(const SparsifierDescriptor& descriptor, std::size_t n,
                                   double density) {
  return SlotCapacity(n, density, descriptor.unbounded_count);
}

// The slot capacity for a tensor of known shape.
inline std::size_t SlotCapacityFor(const SparsifierDescriptor& descriptor,
                                   const Sparsifier& sparsifier, std::size_t n,
                                   std::span<const std::int64_t> shape, double density) {
  return std::max(SlotCapacityFor(descriptor, n, density), sparsifier.Count(n, shape, density));
}

// The product of the extents: 1 of {}.
std::size_t ElementsOf(std::span<const std::int64_t> shape);

// k / n, the contraction that an exact top-k and an unbiased choice of k elements promise.
double KeptFraction(std::span<const std::int64_t> shape, double density);

// Every sparsifier of core, in the order in which `sparfuse list sparsifiers` prints them.
std::span<const SparsifierDescriptor> Sparsifiers();

// Finds a descriptor by name or alias. Throws Error{kConfig} naming the nearest known name.
const SparsifierDescriptor& FindSparsifier(std::string_view name);

// Returns the tensor's name, id and step, for errors.
std::string Describe(const TensorInfo& info);

// Checks the source, the density and the tensor's description. Throws Error{kConfig}.
void CheckSelectArguments(std::string_view sparsifier, const SelectSource& source, double density,
                          const TensorInfo& info);

// Throws Error{kConfig} if a slot of this capacity has no room for k elements.
void RequireRoom(std::string_view sparsifier, const TensorInfo& info, std::size_t capacity,
                 std::size_t k);

}  // namespace sparfuse
