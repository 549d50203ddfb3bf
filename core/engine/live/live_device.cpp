// The lanes of LiveEngine on a device: what a reaction gives to a stream, and what it takes when
// the stream has done it.
#include <cassert>
#include <string>

#include "core/base/error.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/feedback/momentum/momentum_device.hpp"
#include "core/payload/accumulate_device.hpp"
#include "core/quantize/payload_coding_device.hpp"

namespace sparfuse {

// Only selections go to the host lane: packing and averaging move memory of the device.
bool LiveEngine::OnStream(const Op& local) const {
  if (!device_) return false;
  if (local.kind == OpKind::kPack || local.kind == OpKind::kApply) return true;
  return local.kind == OpKind::kSparsify && local.lane != Lane::kHost;
}

bool LiveEngine::Follows(const Op& first, const Op& second) const {
  return OnStream(first) && OnStream(second);
}

// What the compute stream is given after an Apply of its own comes after it.
bool LiveEngine::SettlesWhenStarted(const Op& apply) const {
  return OnStream(apply) && apply.lane == Lane::kCompute;
}

void LiveEngine::Enqueue(Handle handle, Op& started) {
  DeviceLane& lane = device_->LaneOf(started.lane);
  const Stream& stream = lane.stream;
  OpReport& report = *device_->reports.OnDevice(handle);
  Enqueued& enqueued = device_->Of(handle);
  Span span;
  span.lane = LaneName(&lane == &device_->compute ? Lane::kCompute : Lane::kSide);
  WaitBeforeEnqueued(started, stream);
  const gpu::GpuEvent& begin = device_->timeline.Begin(stream);
  switch (started.kind) {
    case OpKind::kPack:
      span.kind = SpanKind::kPack;
      span.label = layout().tensor(started.tensor).name;
      EnqueuePack(started, stream, report);
      break;
    case OpKind::kSparsify:
      span.kind = SpanKind::kSparsify;
      span.label = static_cast<const Selection*>(started.attachment)->name;
      EnqueueSparsify(started, lane, report, enqueued);
      break;
    default:
      assert(started.kind == OpKind::kApply);
      span.kind = SpanKind::kDecompress;
      EnqueueApply(started, lane, report);
      break;
  }
  enqueued.end = &device_->timeline.End(stream, begin, std::move(span), started.payload_bytes);
  const gpu::GpuEvent& fetched = device_->FetchReport(lane, handle);
  lane.completions.Add(fetched, [this, handle](std::exception_ptr error) {
    if (error) return Fail(std::move(error));
    PostAndWake({EventKind::kDone, handle});
  });
}

void LiveEngine::WaitBeforeEnqueued(const Op& started, const Stream& stream) {
  for (const Handle other : started.follows) {
    const DeviceLane& lane = device_->LaneOf(op(other).lane);
    if (lane.stream != stream && !op(other).done) {
      gpu::StreamWait(stream, *device_->Of(other).end);
    }
  }
  if (started.kind == OpKind::kApply) {
    const auto& exchange = *static_cast<const ExchangeState*>(op(started.exchange).attachment);
    gpu::StreamWait(stream, *exchange.device.ready);
    return;
  }
  // A gradient is valid in the order of the compute stream.
  if (stream == device_->compute.stream) return;
  if (started.kind == OpKind::kPack || ReadsGradient(started)) {
    gpu::StreamWait(stream, *device_->announced[layout().PositionOf(started.range.begin)]);
  }
}

void LiveEngine::EnqueuePack(const Op& pack, const Stream& stream, OpReport& report) {
  const std::span<const float> gradient = gradients_[pack.tensor];
  CopyFiniteOnDevice(stream, {gradient.data(), gradient.size(), stream},
                     {flat_.data() + pack.range.begin, pack.range.size(), stream},
                     &report.slot.not_finite);
  packed_[pack.tensor] = 1;
}

void LiveEngine::EnqueueSparsify(Op& sparsify, DeviceLane& lane, OpReport& report,
                                 Enqueued& enqueued) {
  auto& selection = *static_cast<Selection*>(sparsify.attachment);
  const Stream& stream = lane.stream;
  const std::size_t n = sparsify.range.size();
  selection.report = &report.slot;
  selection.source.stream = selection.residual.stream = selection.velocity.stream = stream;
  if (selection.velocity.size > 0) {
    const MomentumOptions& options = config_.feedback.momentum;
    if (options.nesterov && lane.growth.size() < n) {
      gpu::Synchronize(stream);  // it may be in use
      lane.growth = {};
      lane.growth = Buffer<float>(n, device_->device, "what velocities grow by");
    }
    const double clip = config_.feedback.clip;
    if (clip > 0) ClipFactorOnDevice(stream, lane.workspace, selection.source, clip, &report.clip);
    selection.source = AdvanceVelocityOnDevice(stream, options, selection.source,
                                               clip > 0 ? &report.clip : nullptr,
                                               selection.velocity, lane.growth.view(stream));
  }
  if (verify_) {
    enqueued.copies = std::make_unique<SelectionCopies>();
    CopyBefore(selection, stream, *enqueued.copies);
  }
  SelectCounters counters;  // the report has them
  const SelectContext host{&pool_, &lane.staging, &counters, {}};
  const DeviceContext context{stream, &lane.workspace, nullptr, &host};
  const SelectSource source{selection.source, selection.residual};
  if (selection.is_run) {
    config_.runs->EncodeOnDevice(context, rank(), source, selection.info,
                                 selection.run.view(stream), &report.slot.not_finite);
    if (selection.velocity.size > 0 && config_.feedback.momentum.masking) {
      gpu::FillAsync(stream, selection.velocity.data, 0, n * sizeof(float));
    }
  } else {
    DeviceSlot slot = DeviceSlotOf(selection);
    config_.sparsifier->SelectOnDevice(context, source, sparsify.density, selection.info,
                                       selection.state.get(), slot);
    const bool kept = selection.residual.size > 0;
    CountMissingOnDevice(
        stream, lane.workspace,
        kept ? DeviceSpan<const float>{selection.residual.data, n, stream} : selection.source, slot,
        BoundsOf(selection, stream), &report.missing);
    RoundToCodingOnDevice(stream, config_.coding, slot, selection.residual);
    if (selection.velocity.size > 0) {
      MaskVelocityOnDevice(stream, config_.feedback.momentum, slot, selection.velocity);
    }
  }
  if (verify_) CopyAfter(selection, stream, *enqueued.copies);
}

DeviceSpan<const std::uint32_t> LiveEngine::BoundsOf(Selection& selection, const Stream& stream) {
  if (selection.bounds.empty()) {
    const Range& range = selection.range;
    for (std::size_t t = selection.info.id;
         t < layout().tensors() && layout().tensor(t).offset < range.end; ++t) {
      const std::size_t begin = std::max(layout().tensor(t).offset, range.begin) - range.begin;
      if (layout().tensor(t).numel > 0) {
        selection.bounds.push_back(static_cast<std::uint32_t>(begin));
      }
    }
    selection.bounds.push_back(static_cast<std::uint32_t>(range.size()));
    selection.bounds_on_device = Buffer<std::uint32_t>(selection.bounds.size(), device_->device,
                                                       "the selection of " + selection.name);
    gpu::CopyAsync(stream, selection.bounds_on_device.data(), selection.bounds.data(),
                   selection.bounds.size() * sizeof(std::uint32_t));
  }
  return {selection.bounds_on_device.data(), selection.bounds.size(), stream};
}

void LiveEngine::EnqueueApply(const Op& apply, DeviceLane& lane, OpReport& report) {
  const auto& exchange = *static_cast<const ExchangeState*>(op(apply.exchange).attachment);
  const Stream& stream = lane.stream;
  SelectCounters counters;
  const SelectContext host{&pool_, &lane.staging, &counters, {}};
  const DeviceContext context{stream, &lane.workspace, nullptr, &host};
  const float scale = 1.0f / static_cast<float>(workers());
  const auto averaged = [&](const Range& range) {
    return DeviceSpan<float>{averaged_.data() + range.begin, range.size(), stream};
  };
  if (exchange.parts.empty()) {
    for (const Range& part : apply.parts) {
      device_->touched.Forget(part);
      ScaleDenseOnDevice(stream, {flat_.data() + part.begin, part.size(), stream}, scale,
                         averaged(part));
    }
    return;
  }
  std::size_t from = 0;
  for (const Selection* part : exchange.parts) {
    if (!part->is_run) continue;
    std::vector<const std::byte*> runs;
    for (const std::byte* run : exchange.device.runs) runs.push_back(run + from);
    device_->touched.Forget(part->range);
    config_.runs->AccumulateOnDevice(context, runs, scale, averaged(part->range),
                                     exchange.device.fault.data());
    from += part->run.size();
  }
  for (const Range& range : RangesWithIndices(exchange)) {
    AccumulateSparseOnDevice(stream, lane.workspace, exchange.device.payloads,
                             {range.begin - apply.range.begin, apply.range.size()}, scale,
                             averaged(range), exchange.device.fault.data(),
                             device_->touched.Of(range, stream));
  }
  gpu::CopyAsync(stream, &report.fault, exchange.device.fault.data(), sizeof(report.fault));
}

void LiveEngine::TakeEnqueued(Handle handle, Op& done) {
  const OpReport& report = device_->reports.OnHost(handle);
  if (done.kind == OpKind::kPack && report.slot.not_finite != 0) {
    SPARFUSE_THROW(kNumeric, "gradient of " + layout().tensor(done.tensor).name +
                                 " has a NaN or an infinity at step " + std::to_string(step_));
  }
  if (done.kind == OpKind::kApply) CheckPayloadFault(report.fault);
  if (done.kind != OpKind::kSparsify) return;
  auto& selection = *static_cast<Selection*>(done.attachment);
  SelectCounters& counters = lanes_[static_cast<std::size_t>(done.lane)].counters;
  if (selection.is_run) {
    if (report.slot.not_finite != 0) TakeReport(report.slot, selection.info, &counters);  // throws
    done.payload_bytes = selection.run.size();
  } else {
    selection.slot.count = TakeReport(report.slot, selection.info, &counters);
    done.payload_bytes = selection.slot.count * kSparseElementBytes;
  }
  selection.missing = report.missing;
  if (const auto& copies = device_->Of(handle).copies) CheckCopies(selection, *copies);
}

// --- verification ---

void LiveEngine::CopyBefore(const Selection& selection, const Stream& stream,
                            SelectionCopies& copies) {
  copies.source.resize(selection.source.size);
  copies.residual.resize(selection.residual.size);
  gpu::CopyAsync(stream, copies.source.data(), selection.source.data,
                 selection.source.size * sizeof(float));
  gpu::CopyAsync(stream, copies.residual.data(), selection.residual.data,
                 selection.residual.size * sizeof(float));
}

void LiveEngine::CopyAfter(const Selection& selection, const Stream& stream,
                           SelectionCopies& copies) {
  copies.unsent.resize(selection.residual.size);
  gpu::CopyAsync(stream, copies.unsent.data(), selection.residual.data,
                 selection.residual.size * sizeof(float));
  if (selection.is_run) {
    copies.run.resize(selection.run.size());
    gpu::CopyAsync(stream, copies.run.data(), selection.run.data(), selection.run.size());
    return;
  }
  copies.indices.resize(selection.slot.capacity);
  copies.values.resize(selection.slot.capacity);
  gpu::CopyAsync(stream, copies.indices.data(), selection.slot.indices.data,
                 selection.slot.capacity * sizeof(std::uint32_t));
  gpu::CopyAsync(stream, copies.values.data(), selection.slot.values.data,
                 selection.slot.capacity * sizeof(float));
}

void LiveEngine::CheckCopies(const Selection& selection, const SelectionCopies& copies) {
  std::vector<float> x = copies.source;
  for (std::size_t i = 0; i < copies.residual.size(); ++i) x[i] += copies.residual[i];
  if (selection.is_run) return CheckRunMass(x, copies.run, copies.unsent);
  const auto indices = std::span(copies.indices).first(selection.slot.count);
  const auto values = std::span(copies.values).first(selection.slot.count);
  CheckMass(x, selection, {indices, values},
            selection.residual.size > 0 ? copies.unsent : copies.source);
  CheckFibres(x, selection, indices);
}

// --- selection on the host ---

// Precondition: mutex_ is held.
void LiveEngine::StartOffload(Work& work) {
  const auto& selection = *static_cast<const Selection*>(work.op->attachment);
  work.offloaded = device_->ring.TryCopy(selection.source, work.ready, device_->events);
}

void LiveEngine::TakeOffloaded(const Work& work) {
  auto& selection = *static_cast<Selection*>(work.op->attachment);
  work.offloaded->copied->Wait();
  selection.source = {work.offloaded->data.data(), selection.source.size, {}};
}

void LiveEngine::GiveBackOffloaded(const Work& work) {
  std::lock_guard lock(mutex_);
  device_->ring.Release(*work.offloaded);
  for (Work& next : lanes_[static_cast<std::size_t>(Lane::kHost)].queue) {
    if (next.offloaded != nullptr) continue;
    StartOffload(next);
    return;
  }
}

}  // namespace sparfuse
