#include "core/engine/live/lanes/host_work.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/feedback/momentum/clipping.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {

double HostWork::Do(Op& local) {
  LiveStep& step = setup_.step;
  const double begin = step.Now();
  SpanKind kind = SpanKind::kPack;
  std::string label;
  switch (local.kind) {
    case OpKind::kPack:
      Pack(local);
      label = step.layout.tensor(local.tensor).name;
      break;
    case OpKind::kSparsify:
      kind = SpanKind::kSparsify;
      Sparsify(local);
      label = local.selection->name;
      break;
    default:
      assert(local.kind == OpKind::kApply);
      kind = SpanKind::kDecompress;
      Apply(local);
      break;
  }
  const double end = step.Now();
  step.timeline.Add(
      {kind, std::string(LaneName(lane_)), std::move(label), begin, end, local.payload_bytes});
  return end;
}

void HostWork::Pack(const Op& pack) {
  LiveStep& step = setup_.step;
  if (!CopyFinite(step.gradients[pack.tensor],
                  step.flat.host().subspan(pack.range.begin, pack.range.size()), pool_)) {
    SPARFUSE_THROW(kNumeric, "gradient of " + step.layout.tensor(pack.tensor).name +
                                 " has a NaN or an infinity at step " +
                                 std::to_string(step.number));
  }
  step.packed[pack.tensor] = 1;
}

// --- selection ---

void HostWork::Sparsify(Op& sparsify) {
  Selection& selection = *sparsify.selection;
  const bool verify = setup_.step.verify;
  if (selection.velocity.size > 0) CorrectMomentum(selection);
  if (setup_.config.feedback.decay != 1) {
    const std::span<float> residual = selection.residual.host();
    ScaleDense(residual, static_cast<float>(setup_.config.feedback.decay), residual, pool_);
  }
  const std::span<const float> source = selection.source.host();
  const std::span<const float> residual = selection.residual.host();
  std::vector<float> x;
  if (verify) {
    x.assign(source.begin(), source.end());
    for (std::size_t i = 0; i < residual.size(); ++i) x[i] += residual[i];
  }
  if (selection.whole) {
    Encode(selection);
    sparsify.payload_bytes = selection.encoded.size();
    if (verify) setup_.checks.CheckWhole(x, selection.encoded.host(), residual);
    return;
  }
  if (selection.accumulated) {
    Accumulate(selection);
  } else {
    Select(selection, sparsify.density);
  }
  const std::size_t count = selection.slot.count;
  sparsify.payload_bytes = count * kSparseElementBytes;
  if (verify) {
    setup_.checks.CheckSelected(
        x, selection,
        {selection.slot.indices.host().first(count), selection.slot.values.host().first(count)},
        residual.empty() ? source : residual);
  }
}

void HostWork::CorrectMomentum(Selection& selection) {
  const Feedback& feedback = setup_.config.feedback;
  const std::span<const float> gradient = selection.source.host();
  if (feedback.momentum.nesterov && growth_.size() < gradient.size()) {
    growth_ = Buffer<float>(gradient.size());
  }
  const float clip = feedback.clip > 0 ? ClipFactor(gradient, feedback.clip, pool_) : 1.0f;
  const std::span<const float> grown = AdvanceVelocity(
      feedback.momentum, gradient, clip, selection.velocity.host(), growth_.host(), pool_);
  selection.source = {grown.data(), grown.size(), {}};
}

void HostWork::Select(Selection& selection, double density) {
  const LiveConfig& config = setup_.config;
  const SelectContext context{&pool_, &workspace_, &counters_, {}};
  const SelectSource source{selection.source, selection.residual};
  config.sparsifier->Select(context, source, density, selection.info, selection.state.get(),
                            selection.slot);
  selection.missing = CountMissing(selection);
  const auto indices = selection.slot.indices.host().first(selection.slot.count);
  RoundToCoding(config.coding, indices, selection.slot.values.host().first(selection.slot.count),
                selection.residual.host());
  if (selection.velocity.size > 0) {
    MaskVelocity(config.feedback.momentum, indices, selection.velocity.host());
  }
}

// The collective selects from x. Nothing is missing: what it takes is seen when it has.
void HostWork::Accumulate(Selection& selection) {
  if (!AddFinite(selection.source.host(), selection.residual.host(), pool_)) {
    SPARFUSE_THROW(kNumeric, "what has accumulated of " + selection.name +
                                 " has a NaN or an infinity at step " +
                                 std::to_string(setup_.step.number));
  }
  selection.slot.count = 0;
  selection.missing = 0;
}

void HostWork::Encode(Selection& selection) {
  const QuantizeContext context{&pool_, &workspace_, setup_.rank};
  const SelectSource source{selection.source, selection.residual};
  setup_.config.dense_quantizer->Encode(context, source, selection.info, selection.encoded.host());
  selection.missing = 0;
  if (selection.velocity.size > 0 && setup_.config.feedback.momentum.masking) {
    std::fill_n(selection.velocity.data, selection.velocity.size, 0.0f);
  }
}

// Tensors that have something to send and send nothing. Where nothing was selected, x is what is
// left.
std::uint64_t HostWork::CountMissing(const Selection& selection) const {
  const GradientLayout& layout = setup_.step.layout;
  const std::span<const float> unsent =
      selection.residual.size > 0 ? selection.residual.host() : selection.source.host();
  const auto indices = selection.slot.indices.host().first(selection.slot.count);
  std::uint64_t missing = 0;
  for (const std::size_t t : layout.TensorsIn(selection.range)) {
    const Range tensor = layout.tensor(t).range();
    const std::size_t begin = std::max(tensor.begin, selection.range.begin) - selection.range.begin;
    const std::size_t end = std::min(tensor.end, selection.range.end) - selection.range.begin;
    const auto first = std::lower_bound(indices.begin(), indices.end(), begin);
    if (first != indices.end() && *first < end) continue;
    const auto part = unsent.subspan(begin, end - begin);
    if (std::any_of(part.begin(), part.end(), [](float value) { return value != 0.0f; })) ++missing;
  }
  return missing;
}

// --- averaging ---

void HostWork::Apply(const Op& apply) {
  const ExchangeState& exchange = *apply.exchange_state;
  if (exchange.parts.empty()) return ApplyReduced(apply);
  if (!exchange.buffers.sums.empty()) return ApplySums(apply);
  if (exchange.whole_bytes > 0) ApplyWhole(exchange);
  if (exchange.capacity > 0) ApplySelected(apply);
}

void HostWork::ApplyReduced(const Op& apply) {
  std::size_t from = 0;
  for (const Range& part : apply.parts) {
    ScaleDense(apply.exchange_state->buffers.dense.subspan(from, part.size()), scale(),
               setup_.step.AveragedRange(part), pool_);
    from += part.size();
  }
}

void HostWork::ApplySums(const Op& apply) {
  for (const Range& part : apply.parts) {
    ScaleDense(
        apply.exchange_state->buffers.sums.subspan(part.begin - apply.range.begin, part.size()),
        scale(), setup_.step.AveragedRange(part), pool_);
  }
}

void HostWork::ApplyWhole(const ExchangeState& exchange) {
  RequireWhole(exchange);
  std::vector<std::span<const std::byte>> encoded(exchange.buffers.payloads.size());
  std::size_t from = 0;
  for (const Selection* part : exchange.parts) {
    if (!part->whole) continue;
    for (std::size_t rank = 0; rank < encoded.size(); ++rank) {
      encoded[rank] = exchange.buffers.payloads[rank].subspan(from, part->encoded.size());
    }
    AccumulateQuantized(*setup_.config.dense_quantizer, encoded, scale(),
                        setup_.step.AveragedRange(part->range), pool_);
    from += part->encoded.size();
  }
}

// Indices are relative to the exchange's first element.
void HostWork::ApplySelected(const Op& apply) {
  const ExchangeState& exchange = *apply.exchange_state;
  const auto& received = exchange.buffers.payloads;
  if (exchange.coded) decoded_.Reserve(received.size() * exchange.capacity);
  std::vector<SparsePayload> payloads;
  payloads.reserve(received.size());
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    const auto payload = received[rank].subspan(exchange.whole_bytes);
    if (exchange.coded) {
      const std::size_t begin = rank * exchange.capacity;
      payloads.push_back(DecodePayload(payload, apply.range.size(),
                                       decoded_.indices.host().subspan(begin, exchange.capacity),
                                       decoded_.values.host().subspan(begin, exchange.capacity)));
    } else {
      payloads.push_back(ViewSparsePayload(payload));
    }
  }
  for (const Range& range : exchange.indexed) {
    AccumulateSparse(payloads, {range.begin - apply.range.begin, apply.range.size()}, scale(),
                     setup_.step.AveragedRange(range), pool_);
  }
}

}  // namespace sparfuse
