// Runs lanes on a device. The compute and side lanes are streams: a reaction enqueues an operation
// at once, with waits for its predecessors on the other stream. The host lane is an OffloadLane.
#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/chunk_coding.hpp"
#include "core/coding/payload_coding.hpp"
#include "core/device/completion_thread.hpp"
#include "core/engine/live/lanes/device_resources.hpp"
#include "core/engine/live/lanes/host_work.hpp"
#include "core/engine/live/lanes/lanes.hpp"
#include "core/engine/live/lanes/offload_lane.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "core/feedback/returned.hpp"
#include "core/localsteps/sender_rules.hpp"
#include "core/payload/accumulate_device.hpp"

namespace sparfuse {
namespace {

// The resources of the compute lane or the side lane.
struct StreamLane {
  explicit StreamLane(Device device) : workspace(device) {}

  Stream stream;
  DeviceWorkspace workspace;
  Workspace staging;     // for selections that run on the host after all
  Buffer<float> growth;  // of velocities, with nesterov
  SelectCounters counters;
  gpu::GpuStream own;
  // Copies reports: a copy to the host between two kernels of `stream` would leave `stream` idle.
  gpu::GpuStream reports;
  gpu::CompletionThread completions;
  // Of selections that the host codes: elements, and the errors of their values.
  gpu::PinnedBuffer<std::uint32_t> coded_indices;
  gpu::PinnedBuffer<float> coded_values, coding_errors;
  Buffer<float> errors_on_device;
  Buffer<std::uint32_t> taken;  // [1] unread
};

// An operation enqueued on a stream.
struct Enqueued {
  Stream stream;
  const gpu::GpuEvent* end = nullptr;
  bool done = false;
  std::unique_ptr<SelectionCopies> copies;
};

class DeviceLanes final : public Lanes {
 public:
  explicit DeviceLanes(const LaneSetup& setup)
      : setup_(setup),
        step_(setup.step),
        device_(setup.config.device),
        events_(device_),
        reports_(device_),
        touched_(device_),
        timeline_(events_),
        compute_(device_),
        side_(device_),
        announced_(step_.layout.tensors()),
        offload_(setup, events_) {
    const Stream& given = setup.config.compute;
    if (given.device == device_) {
      compute_.stream = given;
    } else if (given.device.kind == DeviceKind::kHost) {
      compute_.own = gpu::GpuStream(device_);
      compute_.stream = compute_.own.view();
    } else {
      SPARFUSE_THROW(kConfig, "the compute stream is of another device than the gradients");
    }
    side_.own = gpu::GpuStream(device_, gpu::Priority::kHigh);
    side_.stream = side_.own.view();
    for (StreamLane* lane : {&compute_, &side_}) {
      lane->reports = gpu::GpuStream(device_, gpu::Priority::kHigh);
    }
    timeline_.SetCompute(compute_.stream);
  }

  Stream compute_stream() const override { return compute_.stream; }

  std::unique_ptr<ExchangeStaging> MakeStaging(const StagingSetup& setup,
                                               ProgressLoop& loop) override {
    return MakeDeviceStaging(setup, loop, events_);
  }

  SelectCounters counters() const override {
    SelectCounters sum = offload_.counters();
    for (const StreamLane* lane : {&compute_, &side_}) sum += lane->counters;
    return sum;
  }

  // --- called by the thread of the training loop ---

  void BeginStep() override {
    events_.Reset();
    enqueued_.clear();
    std::fill(announced_.begin(), announced_.end(), nullptr);
    reports_.Clear(compute_.stream);
    gpu::StreamWait(side_.stream, timeline_.BeginStep(compute_.completions));
  }
  void BeginPart() override { timeline_.Mark(); }
  void EndPart(SpanKind kind, std::string label) override {
    part_end_ = &timeline_.EndPart(kind, std::move(label));
  }
  void SetInterrupted(std::optional<SpanKind> kind) override { timeline_.SetInterrupted(kind); }
  void Announce(std::size_t tensor) override { announced_[tensor] = part_end_; }

  bool HasWork() override { return false; }  // the streams have the work
  Handle Work() override { return 0; }

  double EndStep() override {
    const double seconds = timeline_.Resolve(step_.begin, step_.timeline);
    // A completion callback refers to its event for a moment longer.
    compute_.completions.Drain();
    side_.completions.Drain();
    return seconds;
  }

  void Replan() override { touched_.Restart(); }

  void Stop() noexcept override {
    offload_.Stop();
    for (const StreamLane* lane : {&compute_, &side_}) {
      gpu::Quiesce(lane->stream);
      gpu::Quiesce(lane->reports.view());
    }
  }

  // --- called by reactions ---

  // The host lane takes selections only: packing and averaging move memory of the device.
  bool OnStream(const Op& local) const override {
    if (local.If<SparsifyRequest>()) return local.lane != Lane::kHost;
    return local.If<PackRequest>() || local.If<ApplyRequest>() || local.summed != 0;
  }

  void Start(LiveOp& local) override {
    if (OnStream(*local.op)) return Enqueue(local);
    if (local.behind.size() > 1) {
      SPARFUSE_THROW(kUnsupported,
                     "a selection on the host lane from the results of several exchanges, which "
                     "lie on a device");
    }
    const gpu::GpuEvent* ready = local.behind.empty() ? nullptr : local.behind[0]->device.ready;
    if (step_.ReadsGradient(local.op->range())) ready = AnnouncedOf(*local.op);
    offload_.Start(local, ready);
  }

  void Take(LiveOp& local) override {
    if (!OnStream(*local.op)) return;
    Of(local.handle).done = true;
    const OpReport& report = reports_.OnHost(local.handle);
    if (const auto* pack = local.op->If<PackRequest>()) {
      if (report.slot.not_finite != 0) ThrowNotFinite(setup_, *pack);
      return;
    }
    if (local.selection != nullptr) return TakeSelection(report, local);
    CheckPayloadFault(report.fault);
  }

 private:
  // Packing and averaging for the host lane move memory of the device, so the side lane does them.
  StreamLane& LaneOf(Lane lane) { return lane == Lane::kCompute ? compute_ : side_; }

  // Parameters are valid in the order of the compute stream.
  StreamLane& LaneOf(const Op& op) {
    const auto* pack = op.If<PackRequest>();
    const auto* apply = op.If<ApplyRequest>();
    const bool of_parameters = (pack != nullptr && pack->source != PackSource::kGradient) ||
                               (apply != nullptr && apply->to != ApplyTo::kGradient);
    return of_parameters ? compute_ : LaneOf(op.lane);
  }

  const gpu::GpuEvent* AnnouncedOf(const Op& local) const {
    return announced_[step_.layout.PositionOf(local.range().begin)];
  }

  Enqueued& Of(Handle handle) {
    if (enqueued_.size() < handle) enqueued_.resize(handle);
    return enqueued_[handle - 1];
  }

  void Enqueue(LiveOp& started) {
    const Handle handle = started.handle;
    Op& op = *started.op;
    StreamLane& lane = LaneOf(op);
    OpReport& report = *reports_.OnDevice(handle);
    Enqueued& enqueued = Of(handle);
    enqueued.stream = lane.stream;
    WaitBefore(started, lane.stream);
    const gpu::GpuEvent& begin = timeline_.Begin(lane.stream);
    if (const auto* pack = op.If<PackRequest>()) {
      Pack(*pack, lane.stream, report);
    } else if (started.selection != nullptr) {
      Sparsify(*started.selection, lane, report, enqueued);
    } else if (op.If<MergeRequest>()) {
      TakeSum(*started.exchange, {nullptr, 1.0f, false}, lane, report);
    } else if (const auto* apply = op.If<ApplyRequest>(); apply->to == ApplyTo::kAnchor) {
      MoveAnchor(*apply, started.exchange, lane, report);
    } else if (apply->to == ApplyTo::kInnerState) {
      RenewInnerState(*apply, started.exchange);
    } else {
      TakeSum(*started.exchange, {step_.averaged.data(), Average(), true}, lane, report);
    }
    Span span{SpanKindOf(op),
              std::string(LaneName(&lane == &compute_ ? Lane::kCompute : Lane::kSide)),
              LabelOf(started, step_.layout)};
    enqueued.end = &timeline_.End(lane.stream, begin, std::move(span), op.payload_bytes);
    gpu::StreamWait(lane.reports.view(), *enqueued.end);
    reports_.Fetch(lane.reports.view(), handle);
    lane.completions.Add(events_.Record(lane.reports.view()),
                         [this, handle](std::exception_ptr error) {
                           if (error) return setup_.events.Fail(std::move(error));
                           setup_.events.Done(handle);
                         });
  }

  void WaitBefore(const LiveOp& started, const Stream& stream) {
    const Op& op = *started.op;
    for (const Handle other : op.stream_predecessors) {
      const Enqueued& before = Of(other);
      if (before.stream != stream && !before.done) gpu::StreamWait(stream, *before.end);
    }
    for (const ExchangeState* exchange : started.behind) {
      gpu::StreamWait(stream, *exchange->device.ready);
    }
    if (op.summed != 0) return;
    // A gradient is valid in the order of the compute stream.
    if (stream == compute_.stream) return;
    if (op.If<PackRequest>() || step_.ReadsGradient(op.range())) {
      gpu::StreamWait(stream, *AnnouncedOf(op));
    }
  }

  void Pack(const PackRequest& pack, const Stream& stream, OpReport& report) {
    const std::size_t tensor = pack.tensor;
    const Range range = step_.layout.tensor(tensor).range();
    float* const to = step_.FlatOf(range, pack.array);
    if (pack.source == PackSource::kGradient) {
      const std::span<const float> gradient = step_.gradients[tensor];
      CopyFiniteOnDevice(stream, {gradient.data(), gradient.size(), stream},
                         {to, range.size(), stream}, &report.slot.not_finite);
    } else {
      step_.anchors->PackOnDevice(tensor, pack.source, pack.array, to, &report.slot.not_finite);
    }
    step_.packed[tensor] = 1;
  }

  // --- selection ---

  void Sparsify(Selection& selection, StreamLane& lane, OpReport& report, Enqueued& enqueued) {
    const Stream& stream = lane.stream;
    selection.report = &report.slot;
    selection.source.stream = selection.residual.stream = selection.velocity.stream = stream;
    if (selection.velocity.size > 0) CorrectMomentum(selection, lane, report);
    if (setup_.config.feedback.decay != 1) {
      const DeviceSpan<float>& residual = selection.residual;
      ScaleDenseOnDevice(stream, {residual.data, residual.size, residual.stream},
                         static_cast<float>(setup_.config.feedback.decay), residual);
    }
    if (step_.verify) {
      enqueued.copies = std::make_unique<SelectionCopies>(stream, selection);
    }
    if (selection.whole) {
      Encode(selection, lane, report);
    } else {
      Select(selection, lane, report);
    }
    if (step_.verify) enqueued.copies->CopyAfter(stream, selection);
    if (setup_.config.local_steps && setup_.config.local_steps->delay > 0) {
      KeepReport(selection, stream);
    }
  }

  // An exchange in the background reads the count in a later step.
  void KeepReport(Selection& selection, const Stream& stream) {
    if (selection.kept_report.size() == 0) {
      selection.kept_report = Buffer<SlotReport>(1, device_, "the report of " + selection.name);
    }
    gpu::CopyAsync(stream, selection.kept_report.data(), selection.report, sizeof(SlotReport));
    selection.report = selection.kept_report.data();
  }

  void CorrectMomentum(Selection& selection, StreamLane& lane, OpReport& report) {
    const Feedback& feedback = setup_.config.feedback;
    const std::size_t n = selection.source.size;
    if (feedback.momentum.nesterov && lane.growth.size() < n) {
      gpu::Synchronize(lane.stream);  // it may be in use
      lane.growth = {};
      lane.growth = Buffer<float>(n, device_, "the increments of velocities");
    }
    float* const clip = feedback.clip > 0 ? &report.clip : nullptr;
    if (clip != nullptr) {
      ClipFactorOnDevice(lane.stream, lane.workspace, selection.source, feedback.clip, clip);
    }
    selection.source =
        AdvanceVelocityOnDevice(lane.stream, feedback.momentum, selection.source, clip,
                                selection.velocity, lane.growth.view(lane.stream));
  }

  void Select(Selection& selection, StreamLane& lane, OpReport& report) {
    const LiveConfig& config = setup_.config;
    const Stream& stream = lane.stream;
    SelectCounters counters;  // unused: the report has the counts
    const SelectContext host{&setup_.pool, &lane.staging, &counters, {}};
    const DeviceContext context{stream, &lane.workspace, nullptr, &host};
    DeviceSlot slot = DeviceSlotOf(selection);
    config.sparsifier->SelectOnDevice(context, {selection.source, selection.residual},
                                      selection.density, selection.info, selection.state.get(),
                                      slot);
    DeviceSpan<const float> unsent = selection.source;
    if (selection.residual.size > 0) unsent.data = selection.residual.data;
    CountMissingOnDevice(stream, lane.workspace, unsent, slot, BoundsOf(selection, stream),
                         &report.missing);
    if (config.coding.of_selections()) {
      CodeOnHost(selection, lane, report);
    } else {
      RoundToCodingOnDevice(stream, config.coding, slot, selection.residual);
    }
    if (selection.velocity.size > 0) {
      MaskVelocityOnDevice(stream, config.feedback.momentum, slot, selection.velocity);
    }
  }

  // Codes a selection by chunks, for which the host needs its elements: waits for the stream.
  void CodeOnHost(Selection& selection, StreamLane& lane, OpReport& report) {
    const Stream& stream = lane.stream;
    const std::size_t capacity = selection.slot.capacity;
    if (lane.coded_values.size() < capacity) {
      gpu::Synchronize(stream);  // they may be in use
      const std::string what = "the selection of " + selection.name;
      lane.coded_indices = gpu::PinnedBuffer<std::uint32_t>(capacity, device_, what);
      lane.coded_values = gpu::PinnedBuffer<float>(capacity, device_, what);
      lane.coding_errors = gpu::PinnedBuffer<float>(capacity, device_, what);
      lane.errors_on_device = Buffer<float>(capacity, device_, what);
      lane.taken = Buffer<std::uint32_t>(1, device_, what);
    }
    SlotReport selected;
    gpu::CopyAsync(stream, &selected, selection.report, sizeof(selected));
    gpu::CopyAsync(stream, lane.coded_indices.data(), selection.slot.indices.data,
                   capacity * sizeof(std::uint32_t));
    gpu::CopyAsync(stream, lane.coded_values.data(), selection.slot.values.data,
                   capacity * sizeof(float));
    gpu::Synchronize(stream);
    if (selected.not_finite != 0) return;  // Take throws
    const std::size_t count = std::min<std::size_t>(selected.count, capacity);
    const auto indices = lane.coded_indices.span().first(count);
    const auto values = lane.coded_values.span().first(count);
    const auto errors = lane.coding_errors.span().first(count);
    std::ranges::copy(values, errors.begin());
    selection.coded_bytes =
        EncodeChunks(setup_.config.coding.Of(selection.density), indices, values, {},
                     selection.range.size(), selection.coded.host());
    for (std::size_t i = 0; i < count; ++i) errors[i] = errors[i] - values[i];
    gpu::CopyAsync(stream, selection.slot.values.data, values.data(), values.size_bytes());
    if (selection.residual.size == 0 || count == 0) return;
    gpu::CopyAsync(stream, lane.errors_on_device.data(), errors.data(), errors.size_bytes());
    AddReturnedOnDevice(
        stream, {selection.slot.indices.data, lane.errors_on_device.data(), count, nullptr},
        {0, selection.range.size()}, selection.residual, lane.taken.data(), &report.fault);
  }

  void Encode(Selection& selection, StreamLane& lane, OpReport& report) {
    const LiveConfig& config = setup_.config;
    SelectCounters counters;
    const SelectContext host{&setup_.pool, &lane.staging, &counters, {}};
    const DeviceContext context{lane.stream, &lane.workspace, nullptr, &host};
    config.dense_quantizer->EncodeOnDevice(
        context, setup_.rank, {selection.source, selection.residual}, selection.info,
        selection.encoded.view(lane.stream), &report.slot.not_finite);
    if (selection.velocity.size > 0 && config.feedback.momentum.masking) {
      gpu::FillAsync(lane.stream, selection.velocity.data, 0,
                     selection.velocity.size * sizeof(float));
    }
  }

  DeviceSpan<const std::uint32_t> BoundsOf(Selection& selection, const Stream& stream) {
    if (selection.bounds.empty()) {
      const GradientLayout& layout = step_.layout;
      const Range& range = selection.range;
      for (const std::size_t t : layout.TensorsIn(range)) {
        const std::size_t begin = std::max(layout.tensor(t).offset, range.begin) - range.begin;
        if (layout.tensor(t).numel > 0) {
          selection.bounds.push_back(static_cast<std::uint32_t>(begin));
        }
      }
      selection.bounds.push_back(static_cast<std::uint32_t>(range.size()));
      selection.bounds_on_device = Buffer<std::uint32_t>(selection.bounds.size(), device_,
                                                         "the selection of " + selection.name);
      gpu::CopyAsync(stream, selection.bounds_on_device.data(), selection.bounds.data(),
                     selection.bounds.size() * sizeof(std::uint32_t));
    }
    return {selection.bounds_on_device.data(), selection.bounds.size(), stream};
  }

  void TakeSelection(const OpReport& report, LiveOp& sparsify) {
    Selection& selection = *sparsify.selection;
    Op& op = *sparsify.op;
    SelectCounters& counters = LaneOf(op).counters;
    if (selection.whole) {
      if (report.slot.not_finite != 0)
        TakeReport(report.slot, selection.info, &counters);  // throws
      op.payload_bytes = selection.encoded.size();
    } else {
      selection.slot.count = TakeReport(report.slot, selection.info, &counters);
      op.payload_bytes = selection.slot.count * kSparseElementBytes;
    }
    selection.missing = report.missing;
    const Enqueued& enqueued = Of(sparsify.handle);
    if (enqueued.copies) enqueued.copies->Check(setup_.checks, selection);
  }

  // --- sums ---

  float Average() const { return 1.0f / static_cast<float>(setup_.workers); }

  // Where a sum is written.
  struct Target {
    float* values = nullptr;  // of all tensors; null: to the flat gradient
    float scale = 1;
    bool touches = false;  // its parts without values are noted, so that sums write little
  };

  void MoveAnchor(const ApplyRequest& apply, const ExchangeState* exchange, StreamLane& lane,
                  OpReport& report) {
    Anchors& anchors = *step_.anchors;
    if (apply.own) return anchors.Restart(*apply.own);
    const float* const apart = exchange->device.sums;
    const bool sparse = exchange->op->sparse();
    if (sparse) TakeSum(*exchange, {nullptr, Average(), false}, lane, report);
    std::size_t from = 0;
    for (const Range& part : exchange->op->parts) {
      const bool last = apply.last && &part == &exchange->op->parts.back();
      const float* const sum = sparse || apart == nullptr ? step_.FlatOf(part) : apart + from;
      anchors.StepOnDevice(part, sum, sparse ? 1.0f : Average(), last, lane.workspace);
      from += part.size();
    }
  }

  // Sums lie in the flat memory: the exchange is not in the background.
  void RenewInnerState(const ApplyRequest& apply, const ExchangeState* exchange) {
    Anchors& anchors = *step_.anchors;
    if (apply.own) return anchors.ResetInner(*apply.own);
    const std::size_t array = exchange->op->exchange().array();
    for (const Range& part : exchange->op->parts)
      anchors.AverageInner(part, array, step_.FlatOf(part, array), Average(), setup_.pool);
  }

  void TakeSum(const ExchangeState& exchange, const Target& to, StreamLane& lane,
               OpReport& report) {
    const Op& op = *exchange.op;
    const Range whole = op.range();
    const Stream& stream = lane.stream;
    const float scale = to.scale;
    const float* const apart = exchange.device.sums;
    const auto at = [&](const Range& range) {
      float* const values = to.values == nullptr ? step_.FlatOf(range) : to.values + range.begin;
      return DeviceSpan<float>{values, range.size(), stream};
    };
    const auto target = [&](const Range& range) {
      if (to.touches) touched_.Forget(range);
      return at(range);
    };
    if (!op.sparse()) {
      std::size_t from = 0;
      for (const Range& part : op.parts) {
        const float* const sums = apart == nullptr ? step_.FlatOf(part) : apart + from;
        ScaleDenseOnDevice(stream, {sums, part.size(), stream}, scale, target(part));
        from += part.size();
      }
      return;
    }
    if (apart != nullptr) {
      for (const Range& part : op.parts) {
        ScaleDenseOnDevice(stream, {apart + (part.begin - whole.begin), part.size(), stream}, scale,
                           target(part));
      }
      return;
    }
    SelectCounters counters;
    const SelectContext host{&setup_.pool, &lane.staging, &counters, {}};
    const DeviceContext context{stream, &lane.workspace, nullptr, &host};
    const auto& begins = exchange.device.begins;
    std::vector<std::size_t> from(begins.size());
    for (const WholePart& part : exchange.payload.whole) {
      std::vector<const std::byte*> encoded;
      for (std::size_t member = 0; member < begins.size(); ++member) {
        if (part.member.value_or(member) != member) continue;
        encoded.push_back(begins[member] + from[member]);
        from[member] += part.bytes;
      }
      setup_.config.dense_quantizer->AccumulateOnDevice(context, encoded, scale, target(part.range),
                                                        exchange.device.fault.data());
    }
    const auto& windows = setup_.config.local_steps;
    const bool by_senders = windows && windows->by_senders;
    std::span<const DevicePayload> payloads = exchange.device.payloads;
    std::vector<DevicePayload> scaled;
    if (windows && windows->to_median) {
      scaled =
          ScaleToMedianOnDevice(stream, lane.workspace, payloads, TensorsWithIndices(exchange));
      payloads = scaled;
    }
    for (const Range& range : exchange.payload.indexed) {
      const Window window{range.begin - whole.begin, whole.size()};
      AccumulateSparseOnDevice(stream, lane.workspace, payloads, window, by_senders ? 1.0f : scale,
                               at(range), exchange.device.fault.data(),
                               to.touches ? touched_.Of(range, stream) : nullptr);
      if (by_senders)
        DivideBySendersOnDevice(stream, lane.workspace, payloads, window.first, at(range));
    }
    gpu::CopyAsync(stream, &report.fault, exchange.device.fault.data(), sizeof(report.fault));
  }

  const LaneSetup setup_;
  LiveStep& step_;
  const Device device_;
  gpu::EventPool events_;
  OpReports reports_;
  TouchedRanges touched_;
  DeviceTimeline timeline_;
  StreamLane compute_;
  StreamLane side_;
  const gpu::GpuEvent* part_end_ = nullptr;
  std::vector<const gpu::GpuEvent*> announced_;  // [tensors] of this step
  std::deque<Enqueued> enqueued_;                // by handle
  OffloadLane offload_;
};

}  // namespace

std::unique_ptr<Lanes> MakeDeviceLanes(const LaneSetup& setup) {
  return std::make_unique<DeviceLanes>(setup);
}

}  // namespace sparfuse
