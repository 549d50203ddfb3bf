// The compute lane of LiveEngine, as the training loop drives it, and the work that lanes do.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/collective/accumulate.hpp"
#include "core/engine/live_engine.hpp"
#include "core/feedback/clipping.hpp"

namespace sparfuse {

void LiveEngine::BeginStep(std::uint64_t step, bool verify) {
  step_ = step;
  verify_ = verify;
  timeline_.Clear();
  std::fill(gradients_.begin(), gradients_.end(), std::span<const float>());
  std::fill(packed_.begin(), packed_.end(), std::uint8_t{0});
  step_begin_ = Clock::now();
  compute_since_ = 0;
  Drain(Post({EventKind::kStepBegin, 0}));
}

void LiveEngine::BeginForward() { compute_since_ = Now(); }

void LiveEngine::EndForward() { AddComputeSpan(SpanKind::kForward, ""); }

void LiveEngine::EndMicroStep() { AddComputeSpan(SpanKind::kBackward, "micro-step"); }

void LiveEngine::AddComputeSpan(SpanKind kind, std::string label) {
  const double now = Now();
  timeline_.Add(
      {kind, std::string(LaneName(Lane::kCompute)), std::move(label), compute_since_, now, 0});
  compute_since_ = now;
}

void LiveEngine::AnnounceGradient(std::size_t tensor, std::span<const float> gradient) {
  assert(gradient.size() == layout().tensor(tensor).numel);
  AddComputeSpan(SpanKind::kBackward, layout().tensor(tensor).name);
  gradients_[tensor] = gradient;
  Drain(Post({EventKind::kGradientReady, tensor}));
}

void LiveEngine::EndBackward() {
  AddComputeSpan(SpanKind::kBackward, "end");
  for (std::size_t t = 0; t < layout().tensors(); ++t) {
    if (!gradients_[t].empty()) continue;
    gradients_[t] = zeros_.host().first(layout().tensor(t).numel);
    Drain(Post({EventKind::kGradientReady, t}));
  }
  Drain(Post({EventKind::kBackwardEnd, 0}));
}

// Precondition: the compute queue is not empty; `lock` holds mutex_. Returns the sequence of the
// event that says the work is done.
std::uint64_t LiveEngine::ExecuteNext(std::unique_lock<std::mutex>& lock, bool waited) {
  std::deque<Work>& queue = lanes_[static_cast<std::size_t>(Lane::kCompute)].queue;
  const Work work = queue.front();
  queue.pop_front();
  HandOver();
  lock.unlock();
  if (waited) AddComputeSpan(SpanKind::kExposed, "");
  Execute(Lane::kCompute, work);
  const std::uint64_t sequence = Post({EventKind::kDone, work.handle});
  lock.lock();
  return sequence;
}

// Works on the compute lane until the event `sequence` has been reacted to and nothing is queued:
// what a strategy asks of this lane in a reaction is done before the announcement returns.
void LiveEngine::Drain(std::uint64_t sequence) {
  const LaneState& lane = lanes_[static_cast<std::size_t>(Lane::kCompute)];
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    if (!lane.queue.empty()) {
      sequence = ExecuteNext(lock, false);
    } else if (processed_ >= sequence) {
      HandOver();
      return;
    } else if (!ReactToNext(lock)) {
      lanes_changed_.wait(lock);
    }
  }
}

void LiveEngine::FinishStep() {
  const auto deadline = Clock::now() + config_.deadline;
  const LaneState& lane = lanes_[static_cast<std::size_t>(Lane::kCompute)];
  compute_since_ = Now();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (failure_) std::rethrow_exception(failure_);
    if (!lane.queue.empty()) {
      ExecuteNext(lock, true);
    } else if (complete_) {
      break;
    } else if (ReactToNext(lock)) {
      continue;
    } else if (lanes_changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
      lock.unlock();
      Drain(Post({EventKind::kStepTimeout, 0}));  // a reaction knows what is unfinished; throws
      lock.lock();
    }
  }
  HandOver();
}

void LiveEngine::BeginUpdate() { compute_since_ = Now(); }

StepRecord LiveEngine::EndStep() {
  AddComputeSpan(SpanKind::kUpdate, "");
  StepRecord record = record_;
  const std::string_view compute = LaneName(Lane::kCompute);
  record.step_seconds = Now();
  record.forward_seconds = timeline_.Total(SpanKind::kForward, compute);
  record.backward_seconds = timeline_.Total(SpanKind::kBackward, compute);
  record.sparsify_seconds =
      timeline_.Total(SpanKind::kPack, compute) + timeline_.Total(SpanKind::kSparsify, compute);
  record.exposed_communication_seconds = timeline_.Total(SpanKind::kExposed, compute);
  record.decompress_seconds = timeline_.Total(SpanKind::kDecompress, compute);
  record.update_seconds = timeline_.Total(SpanKind::kUpdate, compute);
  record.align_wait_seconds = timeline_.Total(SpanKind::kAlign);
  return record;
}

std::span<const float> LiveEngine::Averaged(std::size_t tensor) const {
  const Range range = layout().tensor(tensor).range();
  return averaged_.host().subspan(range.begin, range.size());
}

void LiveEngine::RunLane(Lane which) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  std::unique_lock lock(mutex_);
  for (;;) {
    lanes_changed_.wait(lock, [&] { return stop_ || (!lane.queue.empty() && !failure_); });
    if (stop_) return;
    const Work work = lane.queue.front();
    lane.queue.pop_front();
    lock.unlock();
    try {
      Execute(which, work);
      PostAndWake({EventKind::kDone, work.handle});
    } catch (...) {
      Fail(std::current_exception());
    }
    lock.lock();
  }
}

void LiveEngine::Execute(Lane lane, const Work& work) {
  const double begin = Now();
  SpanKind kind = SpanKind::kPack;
  std::string label;
  switch (work.op->kind) {
    case OpKind::kPack:
      DoPack(*work.op);
      label = layout().tensor(work.op->tensor).name;
      break;
    case OpKind::kSparsify:
      kind = SpanKind::kSparsify;
      DoSparsify(lane, *work.op);
      label = static_cast<const Selection*>(work.op->attachment)->name;
      break;
    default:
      assert(work.op->kind == OpKind::kApply);
      kind = SpanKind::kDecompress;
      DoApply(lane, *work.op, *work.exchange);
      break;
  }
  const double end = Now();
  timeline_.Add(
      {kind, std::string(LaneName(lane)), std::move(label), begin, end, work.op->payload_bytes});
  if (lane == Lane::kCompute) compute_since_ = end;
}

void LiveEngine::DoPack(const Op& pack) {
  const Range& range = pack.range;
  if (!CopyFinite(gradients_[pack.tensor], flat_.host().subspan(range.begin, range.size()),
                  pool_)) {
    SPARFUSE_THROW(kNumeric, "gradient of " + layout().tensor(pack.tensor).name +
                                 " has a NaN or an infinity at step " + std::to_string(step_));
  }
  packed_[pack.tensor] = 1;
}

void LiveEngine::DoSparsify(Lane lane, Op& sparsify) {
  Selection& selection = *static_cast<Selection*>(sparsify.attachment);
  if (!selection.velocity.empty()) {
    Buffer<float>& growth = lanes_[static_cast<std::size_t>(lane)].growth;
    const MomentumOptions& options = config_.feedback.momentum;
    if (options.nesterov && growth.size() < selection.source.size()) {
      growth = Buffer<float>(selection.source.size());
    }
    const double clip = config_.feedback.clip;
    const float scale = clip > 0 ? ClipFactor(selection.source, clip, PoolOf(lane)) : 1.0f;
    selection.source = AdvanceVelocity(options, selection.source, scale, selection.velocity,
                                       growth.host(), PoolOf(lane));
  }
  std::vector<float> x;
  if (verify_) {
    x.assign(selection.source.begin(), selection.source.end());
    for (std::size_t i = 0; i < selection.residual.size; ++i) x[i] += selection.residual.data[i];
  }
  if (selection.is_run) {
    EncodeRun(lane, selection);
    sparsify.payload_bytes = selection.run.size();
    if (verify_) CheckRunMass(x, selection);
  } else {
    SelectInto(lane, selection, sparsify.density);
    sparsify.payload_bytes = selection.slot.count * kSparseElementBytes;
    if (verify_) {
      CheckMass(x, selection);
      CheckFibres(x, selection);
    }
  }
}

void LiveEngine::SelectInto(Lane which, Selection& selection, double density) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  const SelectContext context{&PoolOf(which), &lane.workspace, &lane.counters, {}};
  const SelectSource source{{selection.source.data(), selection.source.size(), {}},
                            selection.residual};
  config_.sparsifier->Select(context, source, density, selection.info, selection.state.get(),
                             selection.slot);
  selection.missing = CountMissing(selection);
  const auto indices = selection.slot.indices.host().first(selection.slot.count);
  RoundToCoding(config_.coding, indices, selection.slot.values.host().first(selection.slot.count),
                selection.residual.host());
  if (!selection.velocity.empty()) {
    MaskVelocity(config_.feedback.momentum, indices, selection.velocity);
  }
}

void LiveEngine::EncodeRun(Lane which, Selection& selection) {
  const QuantizeContext context{&PoolOf(which), &lanes_[static_cast<std::size_t>(which)].workspace,
                                rank()};
  const SelectSource source{{selection.source.data(), selection.source.size(), {}},
                            selection.residual};
  config_.runs->Encode(context, source, selection.info, selection.run.host());
  selection.missing = 0;
  if (!selection.velocity.empty() && config_.feedback.momentum.masking) {
    std::fill(selection.velocity.begin(), selection.velocity.end(), 0.0f);
  }
}

// Tensors that have something to send and send nothing. Where nothing was selected, x is what is
// left.
std::uint64_t LiveEngine::CountMissing(const Selection& selection) const {
  const std::span<const float> unsent =
      selection.residual.size > 0 ? selection.residual.host() : selection.source;
  const auto indices = selection.slot.indices.host().first(selection.slot.count);
  std::uint64_t missing = 0;
  for (std::size_t t = selection.info.id;
       t < layout().tensors() && layout().tensor(t).offset < selection.range.end; ++t) {
    const Range tensor = layout().tensor(t).range();
    const std::size_t begin = std::max(tensor.begin, selection.range.begin) - selection.range.begin;
    const std::size_t end = std::min(tensor.end, selection.range.end) - selection.range.begin;
    const auto first = std::lower_bound(indices.begin(), indices.end(), begin);
    if (first != indices.end() && *first < end) continue;
    const auto part = unsent.subspan(begin, end - begin);
    if (std::any_of(part.begin(), part.end(), [](float value) { return value != 0.0f; })) ++missing;
  }
  return missing;
}

// sent + new residual = x, bit for bit: every element is in exactly one of the two, unchanged.
// Where the coding rounds, a sent element is split between the two, and their sum is exact but for
// the sign of a zero. Without feedback only what was sent is checked.
void LiveEngine::CheckMass(std::span<const float> x, const Selection& selection) {
  ++mass_checks_;
  const bool feedback = selection.residual.size > 0;
  const std::span<const float> unsent = feedback ? selection.residual.host() : selection.source;
  std::vector<float> kept(unsent.begin(), unsent.end());
  bool conserved = true;
  for (std::size_t i = 0; i < selection.slot.count; ++i) {
    const std::uint32_t index = selection.slot.indices.data[i];
    const float sent = selection.slot.values.data[i];
    if (config_.coding.values == ValueCoding::kF32) {
      if (feedback && kept[index] != 0.0f) conserved = false;
      kept[index] = sent;
      continue;
    }
    float whole = x[index];
    if (!feedback) RoundToCoding(config_.coding, {&index, 1}, {&whole, 1}, {});
    const float rest = feedback ? kept[index] : 0.0f;
    if (sent + rest != whole) conserved = false;
    kept[index] = x[index];
  }
  if (std::memcmp(kept.data(), x.data(), x.size() * sizeof(float)) != 0) conserved = false;
  if (!conserved) ++mass_violations_;
}

void LiveEngine::CheckFibres(std::span<const float> x, const Selection& selection) {
  const auto indices = selection.slot.indices.host().first(selection.slot.count);
  std::vector<bool> has;   // something to send
  std::vector<bool> sent;  // something of it
  for (std::size_t t = selection.info.id;
       t < layout().tensors() && layout().tensor(t).offset < selection.range.end; ++t) {
    const TensorEntry& tensor = layout().tensor(t);
    if (tensor.shape.size() < 2 || tensor.range().end > selection.range.end) continue;
    const std::size_t begin = tensor.offset - selection.range.begin;
    const auto length = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t inner =
        tensor.numel / static_cast<std::size_t>(tensor.shape[0]) / std::max<std::size_t>(length, 1);
    const auto fibre = [&](std::size_t i) { return i / (length * inner) * inner + i % inner; };
    has.assign(tensor.numel / length, false);
    sent.assign(tensor.numel / length, false);
    for (std::size_t i = 0; i < tensor.numel; ++i) {
      if (x[begin + i] != 0.0f) has[fibre(i)] = true;
    }
    for (auto it = std::lower_bound(indices.begin(), indices.end(), begin);
         it != indices.end() && *it < begin + tensor.numel; ++it) {
      sent[fibre(*it - begin)] = true;
    }
    for (std::size_t f = 0; f < has.size(); ++f) {
      fibres_checked_ += has[f];
      fibres_missing_ += has[f] && !sent[f];
    }
  }
}

// decoded + new residual = x but for the rounding of their difference. Without feedback there is
// nothing to compare with.
void LiveEngine::CheckRunMass(std::span<const float> x, const Selection& selection) {
  ++mass_checks_;
  if (selection.residual.size == 0) return;
  constexpr float kRounding = 2 * std::numeric_limits<float>::epsilon();
  std::vector<float> decoded(x.size());
  const std::span<const std::byte> payload = selection.run.host();
  ThreadPool alone(1);
  AccumulateQuantized(*config_.runs, {&payload, 1}, 1.0f, decoded, alone);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float error = std::abs(x[i] - (decoded[i] + selection.residual.data[i]));
    if (error > kRounding * (std::abs(x[i]) + std::abs(decoded[i]))) {
      ++mass_violations_;
      return;
    }
  }
}

void LiveEngine::DoApply(Lane lane, const Op& apply, const ExchangeState& exchange) {
  if (exchange.parts.empty()) return ApplyReduced(lane, apply, exchange);
  if (exchange.run_bytes > 0) ApplyRuns(lane, apply, exchange);
  if (exchange.capacity > 0) ApplySelected(lane, apply, exchange);
}

void LiveEngine::ApplyReduced(Lane lane, const Op& apply, const ExchangeState& exchange) {
  const float scale = 1.0f / static_cast<float>(workers());
  std::size_t from = 0;
  for (const Range& part : apply.parts) {
    ScaleDense(exchange.buffers.dense.subspan(from, part.size()), scale, AveragedRange(part),
               PoolOf(lane));
    from += part.size();
  }
}

void LiveEngine::ApplyRuns(Lane lane, const Op&, const ExchangeState& exchange) {
  const float scale = 1.0f / static_cast<float>(workers());
  std::vector<std::span<const std::byte>> runs(exchange.buffers.by_rank.size());
  std::size_t from = 0;
  for (const Selection* part : exchange.parts) {
    if (!part->is_run) continue;
    for (std::size_t rank = 0; rank < runs.size(); ++rank) {
      const auto payload = exchange.buffers.by_rank[rank];
      if (payload.size() < exchange.run_bytes) {
        SPARFUSE_THROW(kComm, "payload of rank " + std::to_string(rank) + " has " +
                                  std::to_string(payload.size()) + " bytes: expected at least " +
                                  std::to_string(exchange.run_bytes) + " for whole tensors");
      }
      runs[rank] = payload.subspan(from, part->run.size());
    }
    AccumulateQuantized(*config_.runs, runs, scale, AveragedRange(part->range), PoolOf(lane));
    from += part->run.size();
  }
}

// What has indices, relative to the exchange's first element.
void LiveEngine::ApplySelected(Lane which, const Op& apply, const ExchangeState& exchange) {
  const float scale = 1.0f / static_cast<float>(workers());
  Elements& decoded = lanes_[static_cast<std::size_t>(which)].decoded;
  const auto& by_rank = exchange.buffers.by_rank;
  if (IsCoded()) decoded.Reserve(by_rank.size() * exchange.capacity);
  std::vector<SparsePayload> payloads;
  payloads.reserve(by_rank.size());
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto payload = by_rank[rank].subspan(exchange.run_bytes);
    if (IsCoded()) {
      const std::size_t begin = rank * exchange.capacity;
      payloads.push_back(DecodePayload(payload, apply.range.size(),
                                       decoded.indices.host().subspan(begin, exchange.capacity),
                                       decoded.values.host().subspan(begin, exchange.capacity)));
    } else {
      payloads.push_back(ViewSparsePayload(payload));
    }
  }
  // Runs lie between the ranges that have indices; what is between ranges is another exchange's.
  Range range{};
  const auto flush = [&] {
    if (range.size() == 0) return;
    AccumulateSparse(payloads, {range.begin - apply.range.begin, apply.range.size()}, scale,
                     AveragedRange(range), PoolOf(which));
  };
  for (const Selection* part : exchange.parts) {
    if (part->is_run) continue;
    if (part->range.begin != range.end) {
      flush();
      range = part->range;
    }
    range.end = part->range.end;
  }
  flush();
}

}  // namespace sparfuse
