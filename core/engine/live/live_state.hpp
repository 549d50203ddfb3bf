// Holds the configuration of a LiveEngine, its current step, which engine and lanes share, and the
// state of selections, of exchanges and of operations that have begun.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/coding/payload_coding.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/device/device.hpp"
#include "core/device/runtime.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/operation.hpp"
#include "core/engine/timeline.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/layout.hpp"
#include "core/localsteps/anchors.hpp"
#include "core/payload/accumulate_device.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

struct LiveConfig {
  GradientLayout layout;
  Plan plan;
  Topology topology;
  std::unique_ptr<Strategy> strategy;
  bool strategy_loses = false;                 // StrategyDescriptor::loses
  std::optional<LocalSteps> local_steps = {};  // StrategyDescriptor::local_steps
  // That the optimizer keeps of the parameters (Engine::inner_arrays), for LocalSteps::inner.
  std::size_t inner_arrays = 0;
  bool delays = false;                     // StrategyDescriptor::delays
  std::unique_ptr<Sparsifier> sparsifier;  // null when nothing is sparsified
  bool unbounded_count = false;            // of its descriptor: slots hold all elements
  Feedback feedback;                       // for all tensors except those without feedback
  // Encodes whole (unsparsified) tensors. Null: they are sent as index/value pairs.
  std::unique_ptr<Quantizer> dense_quantizer;
  // For exchanges without selections, and with selections; may be shared with other engines.
  std::shared_ptr<const Collective> dense_collective;
  std::shared_ptr<const Collective> sparse_collective;
  // How index/value payloads are encoded; plain f32/u32 has no header.
  PayloadCoding coding;
  // Of StepScheduler: added to the time of the engine's own work, to emulate a slower host.
  double exchange_host_seconds = 0;
  Device device;  // where gradients and averages lie
  // On a device: the stream of forward, backward and update. By default the engine makes one.
  Stream compute;
  // On the host: called, by any lane, with the text of an error if a gradient has a NaN or an
  // infinity. The step goes on with zeros in its place. Unset: such a gradient fails the step.
  std::function<void(const std::string&)> on_nonfinite = {};
  // On the host: averages may be written where gradients lie (LiveEngine::AverageInto). They then
  // wait for FinishStep: until then the caller and other hooks see gradients.
  bool averages_at_end = false;
  // What happens between two steps is no training: evaluations, checks. An exchange in the
  // background then ends later by the time that it had between steps. Unset: training goes on
  // there.
  bool pauses_between_steps = false;
  std::chrono::milliseconds deadline{60000};  // of FinishStep, beyond that of any single wait
  // Called several times a second while FinishStep has nothing to do. FinishStep rethrows its
  // errors.
  std::function<void()> while_waiting;
};

// Where the flat gradient keeps elements of the layout. With local steps one fragment at a time is
// under way, so that fragments share the memory.
class FlatPlaces {
 public:
  // layout: outlives it. arrays: of an inner optimizer's state that are sent with the fragment, in
  // memory of their own.
  FlatPlaces(const GradientLayout& layout, const Plan& plan, bool by_fragment,
             std::size_t arrays = 0);

  std::size_t size() const noexcept { return (1 + arrays_) * size_; }
  // The place of the first element of a range, as PackRequest::array. The rest of the range, which
  // lies in tensors of one fragment, follows.
  std::size_t Of(Range range, std::size_t array = 0) const;

 private:
  const GradientLayout& layout_;
  std::vector<std::size_t> begins_;  // [tensors]; empty: in the order of the layout
  std::size_t size_ = 0;             // of one array
  std::size_t arrays_ = 0;
};

// The state that one step of a LiveEngine leaves to the next.
// In host memory: whole flat gradients in ready order. SaveState reuses the memory.
struct EngineState {
  using Stores = std::map<std::string, std::vector<float>, std::less<>>;  // by residual
  Stores residuals;
  Stores velocities;
  Stores copies;    // copies of residuals that other ranks keep
  Stores averages;  // of collectives that have such, by name (CollectiveState::Kept)
  // Other memory of sparsifiers and collectives (Exchange of their states), by the place that it
  // serves. A state without an entry begins anew.
  using Remembered = std::map<std::string, std::vector<double>, std::less<>>;
  Remembered remembered;
};

// The arrays of the inner optimizer's state that are sent.
inline std::size_t SentArrays(const LiveConfig& config) {
  const auto& steps = config.local_steps;
  return steps && steps->inner == InnerState::kAverage ? config.inner_arrays : 0;
}

struct LiveStep {
  using Clock = std::chrono::steady_clock;

  // of_layout: outlives it.
  LiveStep(const GradientLayout& of_layout, const LiveConfig& config);

  void Begin(std::uint64_t step, bool verified);
  double Now() const { return At(Clock::now()); }  // seconds since Begin
  double At(Clock::time_point time) const {
    return std::chrono::duration<double>(time - begin).count();
  }
  // The memory for the average of a tensor in this step, on the host.
  std::span<float> AverageOf(std::size_t tensor) const;
  // True for a range within one tensor that has not been packed: selection reads the gradient in
  // place. For other ranges, selection reads `flat`.
  bool ReadsGradient(Range range) const;

  float* FlatOf(Range range, std::size_t array = 0) const {
    return flat.data() + places.Of(range, array);
  }

  const GradientLayout& layout;
  FlatPlaces places;               // in `flat`
  Buffer<float> flat;              // packed gradients; after a dense exchange their sum
  Buffer<float> averaged;          // empty with local steps
  std::optional<Anchors> anchors;  // with local steps
  Buffer<float> zeros;             // the gradient of tensors without one

  std::uint64_t number = 0;
  bool verify = false;
  Clock::time_point begin;
  std::vector<std::span<const float>> gradients;  // [tensors]; empty: not announced
  std::vector<std::span<float>> averages;         // [tensors]; empty: in `averaged`
  std::vector<std::uint8_t> packed;               // [tensors]
  std::vector<std::atomic<bool>> checked;         // [tensors] whether a NaN would have been noticed
  Timeline timeline;
};

// Holds the selection from one range for one residual, and the sparsifier's state for it. On a
// device, all buffers lie there, valid in the order of the lane's stream; `slot.count` does not.
struct Selection {
  Range range;
  TensorInfo info;
  std::string name;
  std::string place;  // range and residual, for EngineState::Remembered
  Device device;
  Buffer<std::uint32_t> indices;
  Buffer<float> values;
  Slot slot;
  std::unique_ptr<SparsifierState> state;
  Buffer<std::byte> encoded;  // a whole tensor, encoded by the dense quantizer
  Buffer<std::byte> coded;    // the coded slot, if selections are coded one by one
  // On a device: [tensors + 1] the begins of the tensors in the range, then the range's end.
  std::vector<std::uint32_t> bounds;
  Buffer<std::uint32_t> bounds_on_device;

  // Of this step.
  bool selected = false;  // at most once a step: an exchange may still read the slot
  DeviceSpan<const float> source;
  DeviceSpan<float> residual;    // empty: unsent elements are lost
  DeviceSpan<float> updated;     // takes the new residual; empty: `residual` does
  DeviceSpan<float> velocity;    // with momentum
  SlotReport* report = nullptr;  // on a device
  // [1] on a device, for an exchange that outlives the step, whose reports are used again.
  Buffer<SlotReport> kept_report;
  bool whole = false;        // travels as `encoded`, not in the slot
  bool accumulated = false;  // the collective selects: all of x is in the residual
  double density = 1.0;
  std::size_t kept = 0;         // elements to be selected
  std::size_t coded_bytes = 0;  // of `coded`
  std::uint64_t missing = 0;    // tensors without a selected element
};

inline DeviceSlot DeviceSlotOf(const Selection& selection) {
  return {selection.slot.indices.data, selection.slot.values.data, selection.slot.capacity,
          selection.report};
}

// Elements on their way between the wire form and a coded one. The memory grows and is reused.
struct Elements {
  Buffer<std::uint32_t> indices;
  Buffer<float> values;
  void Reserve(std::size_t count) {
    if (indices.size() >= count) return;
    indices = Buffer<std::uint32_t>(count);
    values = Buffer<float>(count);
  }
};

// The memory of the messages of an exchange on a device.
struct DeviceExchange {
  // Pinned memory, for a host communicator.
  gpu::PinnedBuffer<std::uint32_t> merged_indices;  // of payloads that the host codes or decodes
  gpu::PinnedBuffer<float> merged_values;
  gpu::PinnedBuffer<std::byte> own;
  gpu::PinnedBuffer<std::byte> gathered;
  gpu::PinnedBuffer<float> dense;
  gpu::PinnedBuffer<std::uint32_t> own_bytes;  // [1] size of a payload coded on the device
  // On the device.
  Buffer<std::byte> merged;  // the payload to be coded
  Buffer<std::byte> sent;
  Buffer<std::byte> received;   // of all ranks
  Buffer<std::byte> decoded;    // of all ranks
  Buffer<std::uint32_t> words;  // counts: of `decoded` by rank, then of the own payload
  Buffer<std::uint64_t> fault;  // [1] as AccumulateSparseOnDevice's

  // Apply reads these once `ready` is done.
  std::vector<DevicePayload> payloads;
  std::vector<const std::byte*> begins;  // of payloads: whole tensors come first
  const float* sums = nullptr;           // instead of payloads, or apart from flat: a dense sum
  const gpu::GpuEvent* ready = nullptr;
  // Done when the data that a communicator sends from the device is there; null if already waited
  // for.
  const gpu::GpuEvent* gathered_there = nullptr;
  // For an exchange in the background, which outlives the events of a step: when memory is
  // gathered, and when results are delivered.
  gpu::GpuEvent gathered_event, delivered_event;
};

struct ExchangeState;

// A range that travels whole, as it lies in a member's payload.
struct WholePart {
  Range range;
  std::size_t bytes = 0;
  std::optional<std::size_t> member;  // the only member that gives it; none: all give it
};

// A rank's payload in a sparse exchange: whole tensors, then elements with indices.
struct Payload {
  std::vector<const Selection*> parts;
  const ExchangeState* forwarded = nullptr;  // instead of selections: its result is sent on
  // If members give different ranges: room for the largest part of a member, and the ranges of the
  // flat gradient of which this rank gets sums.
  std::optional<std::size_t> shared_capacity;
  std::optional<std::vector<Range>> sums_of;
  // The ranges that travel whole, if not all members give `parts` or not all get them.
  std::optional<std::vector<WholePart>> whole_of;

  // Set by MeasurePayload.
  std::vector<Range> indexed;    // ranges with sums of elements with indices; neighbours joined
  std::size_t capacity = 0;      // elements with indices that one rank may send
  std::size_t with_indices = 0;  // elements with indices that this rank sends
  std::size_t whole_bytes = 0;   // bytes of whole tensors that this rank sends
  std::vector<WholePart> whole;  // whole parts that arrive, one after another in a payload
  bool coded = false;            // elements with indices are coded (payload_coding.hpp)

  bool in_place = false;  // others read `own` where it lies
  std::shared_ptr<Buffer<std::byte>> own;
  std::shared_ptr<Buffer<std::byte>> before;  // `own` of the step before, which others may read
  Buffer<std::byte> gathered;
  Buffer<std::byte> apart;  // payloads that arrived one after another, taken apart
};

struct ExchangeState {
  Op* op = nullptr;                          // of this step
  std::vector<const ExchangeState*> behind;  // exchanges after which it starts
  ExchangeBuffers buffers;
  Payload payload;           // of sparse exchanges
  Buffer<float> dense;       // if several ranges are reduced as one
  std::size_t elements = 0;  // elements that this rank sends, whole tensors included
  Traffic traffic;
  DeviceExchange device;
  // In the background: other steps may have begun in between.
  LiveStep::Clock::time_point began, ended;
  LiveStep::Clock::duration began_in_steps{};  // LiveEngine::TimeInSteps
};

// The tensors whose selections travel with indices, relative to the exchange's range.
std::vector<Range> TensorsWithIndices(const ExchangeState& exchange);

// A LiveEngine's state of a started operation.
struct LiveOp {
  Handle handle = 0;
  Op* op = nullptr;
  Selection* selection = nullptr;            // the selection of a Sparsify
  ExchangeState* exchange = nullptr;         // the exchange itself, or the one whose sum it takes
  std::vector<const ExchangeState*> behind;  // exchanges after which a local operation starts
};

// The label of a local operation's span.
std::string LabelOf(const LiveOp& local, const GradientLayout& layout);

}  // namespace sparfuse
