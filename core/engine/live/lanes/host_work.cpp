#include "core/engine/live/lanes/host_work.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/feedback/momentum/momentum.hpp"
#include "core/payload/accumulate.hpp"
#include "core/sparsify/scan/scan.hpp"

namespace sparfuse {

void ThrowNotFinite(const LaneSetup& setup, const PackRequest& pack) {
  const LiveStep& step = setup.step;
  const auto& windows = setup.config.local_steps;
  const bool own = pack.source == PackSource::kGradient;
  const bool inner = pack.source == PackSource::kInnerState;
  SPARFUSE_THROW(kNumeric,
                 own     ? "gradient of "
                 : inner ? "what the inner optimizer keeps of "
                         : "the change by local steps of ",
                 step.layout.tensor(pack.tensor).name, " has a NaN or an infinity at step ",
                 step.number,
                 (windows ? ", in window " + std::to_string(step.number / windows->every) : ""));
}

double HostWork::Do(LiveOp& local) {
  LiveStep& step = setup_.step;
  Op& op = *local.op;
  const double begin = step.Now();
  if (const auto* pack = op.If<PackRequest>()) {
    Pack(*pack);
  } else if (op.If<SparsifyRequest>()) {
    op.payload_bytes = Sparsify(*local.selection);
  } else if (op.If<MergeRequest>()) {
    TakeSum(*local.exchange, {Target::Place::kFlat, 1.0f});
  } else if (const auto* apply = op.If<ApplyRequest>(); apply->to == ApplyTo::kAnchor) {
    MoveAnchor(*apply, local.exchange);
  } else if (apply->to == ApplyTo::kInnerState) {
    RenewInnerState(*apply, local.exchange);
  } else {
    TakeSum(*local.exchange,
            {setup_.config.averages_at_end ? Target::Place::kTensors : Target::Place::kAverages,
             1.0f / static_cast<float>(setup_.workers)});
  }
  const double end = step.Now();
  step.timeline.Add({SpanKindOf(op), std::string(LaneName(lane_)), LabelOf(local, step.layout),
                     begin, end, op.payload_bytes});
  return end;
}

void HostWork::Pack(const PackRequest& pack) {
  LiveStep& step = setup_.step;
  const std::size_t tensor = pack.tensor;
  const Range range = step.layout.tensor(tensor).range();
  const std::span<float> to(step.FlatOf(range, pack.array), range.size());
  const bool own = pack.source == PackSource::kGradient;
  bool finite = own ? CopyFinite(step.gradients[tensor], to, pool_)
                    : step.anchors->Pack(tensor, pack.source, pack.array, to, pool_);
  if (!finite && own && setup_.config.on_nonfinite) {
    (void)Nonfinite(tensor);
    std::ranges::fill(to, 0.0f);
    finite = true;
  }
  if (!finite) ThrowNotFinite(setup_, pack);
  step.packed[tensor] = 1;
  step.checked[tensor].store(true, std::memory_order_release);
}

bool HostWork::Nonfinite(std::size_t tensor) const {
  const LiveStep& step = setup_.step;
  const TensorEntry& entry = step.layout.tensor(tensor);
  try {
    RequireFinite(pool_, step.gradients[tensor],
                  {static_cast<std::uint32_t>(tensor), entry.name, entry.shape, step.number});
  } catch (const Error& error) {
    setup_.config.on_nonfinite(error.what());
    return true;
  }
  return false;
}

bool HostWork::ReplaceNonfinite(Selection& selection) {
  if (!Nonfinite(selection.info.id)) return false;
  selection.source = {setup_.step.zeros.data(), selection.range.size(), {}};
  return true;
}

// --- selection ---

std::uint64_t HostWork::Sparsify(Selection& selection) {
  const std::uint64_t bytes = SparsifyOnly(selection);
  LiveStep& step = setup_.step;
  const std::size_t tensor = selection.info.id;
  if (selection.range == step.layout.tensor(tensor).range())
    step.checked[tensor].store(true, std::memory_order_release);
  return bytes;
}

std::uint64_t HostWork::SparsifyOnly(Selection& selection) {
  // A selection that writes the new residual apart has changed nothing when it refuses a NaN.
  const Feedback& feedback = setup_.config.feedback;
  const bool select_looks = selection.updated.size > 0 && selection.velocity.size == 0 &&
                            feedback.decay == 1 && feedback.rate == 1;
  if (ReadsUnchecked(selection) && !select_looks) (void)ReplaceNonfinite(selection);
  if (selection.velocity.size > 0) CorrectMomentum(selection);
  if (setup_.config.feedback.decay != 1) {
    const DeviceSpan<float> to =
        selection.updated.size > 0 ? selection.updated : selection.residual;
    ScaleDense(selection.residual.host(), static_cast<float>(setup_.config.feedback.decay),
               to.host(), pool_);
    selection.residual = to;
    selection.updated = {};
  }
  if (setup_.config.feedback.rate != 1) TakeAtRate(selection);
  const FeedbackRule* const rule = RuleOf(selection);
  if (rule != nullptr) Compensate(*rule, selection);
  const std::span<const float> source = selection.source.host();
  const std::span<const float> before = selection.residual.host();
  const bool verify = setup_.step.verify && (rule == nullptr || rule->conserves());
  std::vector<float> x;
  if (verify) {
    x.assign(source.begin(), source.end());
    for (std::size_t i = 0; rule == nullptr && i < before.size(); ++i) x[i] += before[i];
  }
  if (selection.whole) {
    Encode(selection);
    const std::span<const float> residual = selection.residual.host();
    if (verify && rule == nullptr) setup_.checks.CheckWhole(x, selection.encoded.host(), residual);
    return selection.encoded.size();
  }
  if (selection.accumulated) {
    Accumulate(selection);
  } else {
    Select(selection);
  }
  const std::size_t count = selection.slot.count;
  if (verify) {
    const std::span<const float> residual = selection.residual.host();
    setup_.checks.CheckSelected(
        x, selection,
        {selection.slot.indices.host().first(count), selection.slot.values.host().first(count)},
        residual.empty() ? source : residual);
  }
  return count * kSparseElementBytes;
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

void HostWork::TakeAtRate(Selection& selection) {
  const std::size_t n = selection.source.size;
  if (compensated_.size() < n) compensated_ = Buffer<float>(n);
  const std::span<float> x = compensated_.host().first(n);
  ScaleDense(selection.source.host(), static_cast<float>(setup_.config.feedback.rate), x, pool_);
  selection.source = {x.data(), n, {}};
}

// Replaces the source by the rule's combination of gradient and residual.
void HostWork::Compensate(const FeedbackRule& rule, Selection& selection) {
  const std::size_t n = selection.source.size;
  if (compensated_.size() < n) compensated_ = Buffer<float>(n);
  const std::span<float> x = compensated_.host().first(n);
  rule.Compensate(selection.name, selection.source.host(), selection.residual.host(), x);
  selection.source = {x.data(), n, {}};
}

void HostWork::Select(Selection& selection) {
  const LiveConfig& config = setup_.config;
  const SelectContext context{&pool_, &workspace_, &counters_, {}};
  const FeedbackRule* const rule = RuleOf(selection);
  SelectSource source{selection.source, selection.residual, selection.updated};
  if (rule != nullptr) source.residual = {};
  const auto select = [&] {
    config.sparsifier->Select(context, source, selection.density, selection.info,
                              selection.state.get(), selection.slot);
  };
  try {
    select();
  } catch (const Error& error) {
    if (error.kind() != FailureKind::kNumeric || selection.updated.size == 0 ||
        !ReadsUnchecked(selection) || !ReplaceNonfinite(selection)) {
      throw;
    }
    source.gradient = selection.source;
    selection.slot.count = 0;
    select();
  }
  if (selection.updated.size > 0) selection.residual = selection.updated;
  selection.updated = {};
  if (rule != nullptr) {
    rule->Keep(selection.name, selection.source.host(),
               selection.slot.indices.host().first(selection.slot.count),
               selection.residual.host());
  }
  Code(selection);
  selection.missing = CountMissing(selection);
  if (selection.velocity.size > 0) {
    MaskVelocity(config.feedback.momentum,
                 selection.slot.indices.host().first(selection.slot.count),
                 selection.velocity.host());
  }
}

// Replaces the slot's values by the values that receivers decode.
void HostWork::Code(Selection& selection) {
  const PayloadCoding& coding = setup_.config.coding;
  Slot& slot = selection.slot;
  const std::span<float> residual = selection.residual.host();
  if (coding.of_selections()) {
    selection.coded_bytes = coder_.Encode(coding.Of(selection.density), selection.source.host(),
                                          residual, slot, selection.coded.host(), pool_);
  } else {
    RoundToCoding(coding, slot.indices.host().first(slot.count),
                  slot.values.host().first(slot.count), residual);
  }
}

// Prepares x, from which the collective selects. Nothing counts as missing: only the collective's
// run shows its selection.
void HostWork::Accumulate(Selection& selection) {
  if (!AddFinite(selection.source.host(), selection.residual.host(), pool_)) {
    SPARFUSE_THROW(kNumeric, "the accumulated gradient of ", selection.name,
                   " has a NaN or an infinity at step ", setup_.step.number);
  }
  selection.slot.count = 0;
  selection.missing = 0;
}

void HostWork::Encode(Selection& selection) {
  const QuantizeContext context{&pool_, &workspace_, setup_.rank};
  const FeedbackRule* const rule = RuleOf(selection);
  SelectSource source{selection.source, selection.residual};
  if (rule != nullptr) source.residual = {};
  setup_.config.dense_quantizer->Encode(context, source, selection.info, selection.encoded.host());
  if (rule != nullptr) {  // all elements are sent
    std::vector<std::uint32_t> all(selection.source.size);
    std::iota(all.begin(), all.end(), 0u);
    rule->Keep(selection.name, selection.source.host(), all, selection.residual.host());
  }
  selection.missing = 0;
  if (selection.velocity.size > 0 && setup_.config.feedback.momentum.masking) {
    std::fill_n(selection.velocity.data, selection.velocity.size, 0.0f);
  }
}

// Counts the tensors that have something to send and send nothing. If nothing was selected, x is
// left unsent.
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

// --- sums ---

void HostWork::MoveAnchor(const ApplyRequest& apply, const ExchangeState* exchange) {
  Anchors& anchors = *setup_.step.anchors;
  if (apply.own) return anchors.Restart(*apply.own);
  const float scale = 1.0f / static_cast<float>(setup_.workers);
  const bool sparse = exchange->op->sparse();
  if (sparse) TakeSum(*exchange, {Target::Place::kFlat, scale});
  const float* sums = exchange->buffers.dense.data();
  for (const Range& part : exchange->op->parts) {
    const bool last = apply.last && &part == &exchange->op->parts.back();
    const float* const sum = sparse ? setup_.step.FlatOf(part) : sums;
    anchors.Step(part, {sum, part.size()}, sparse ? 1.0f : scale, last, pool_);
    if (!sparse) sums += part.size();
  }
}

void HostWork::RenewInnerState(const ApplyRequest& apply, const ExchangeState* exchange) {
  Anchors& anchors = *setup_.step.anchors;
  if (apply.own) return anchors.ResetInner(*apply.own);
  const float scale = 1.0f / static_cast<float>(setup_.workers);
  const float* sums = exchange->buffers.dense.data();
  for (const Range& part : exchange->op->parts) {
    anchors.AverageInner(part, exchange->op->exchange().array(), sums, scale, pool_);
    sums += part.size();
  }
}

void HostWork::TakeSum(const ExchangeState& exchange, const Target& to) {
  if (!exchange.op->sparse()) return TakeReduced(exchange, to);
  if (!exchange.buffers.sums.empty()) return TakeSums(exchange, to);
  if (!exchange.payload.whole.empty()) TakeWhole(exchange, to);
  if (exchange.payload.capacity > 0) TakeSelected(exchange, to);
}

template <class Take>
void HostWork::ForPieces(const Target& to, Range range, const Take& take) const {
  LiveStep& step = setup_.step;
  if (to.place == Target::Place::kFlat) return take(range, {step.FlatOf(range), range.size()});
  if (to.place == Target::Place::kAverages)
    return take(range, {step.averaged.data() + range.begin, range.size()});
  const GradientLayout& layout = step.layout;
  for (const std::size_t t : layout.TensorsIn(range)) {
    const Range tensor = layout.tensor(t).range();
    const Range part{std::max(tensor.begin, range.begin), std::min(tensor.end, range.end)};
    take(part, step.AverageOf(t).subspan(part.begin - tensor.begin, part.size()));
  }
}

std::span<float> HostWork::InOnePiece(const Target& to, Range range) const {
  std::span<float> only;
  ForPieces(to, range, [&](Range piece, std::span<float> out) {
    only = piece == range ? out : std::span<float>();
  });
  return only;
}

void HostWork::TakeReduced(const ExchangeState& exchange, const Target& to) {
  std::size_t from = 0;
  for (const Range& part : exchange.op->parts) {
    ForPieces(to, part, [&](Range piece, std::span<float> out) {
      ScaleDense(exchange.buffers.dense.subspan(from, piece.size()), to.scale, out, pool_);
      from += piece.size();
    });
  }
}

void HostWork::TakeSums(const ExchangeState& exchange, const Target& to) {
  const std::size_t begin = exchange.op->range().begin;
  for (const Range& part : exchange.op->parts) {
    ForPieces(to, part, [&](Range piece, std::span<float> out) {
      ScaleDense(exchange.buffers.sums.subspan(piece.begin - begin, piece.size()), to.scale, out,
                 pool_);
    });
  }
}

void HostWork::TakeWhole(const ExchangeState& exchange, const Target& to) {
  RequireWhole(exchange);
  const auto& payloads = exchange.buffers.payloads;
  std::vector<std::size_t> from(payloads.size());
  std::vector<std::span<const std::byte>> encoded;
  for (const WholePart& part : exchange.payload.whole) {
    encoded.clear();
    for (std::size_t member = 0; member < payloads.size(); ++member) {
      if (part.member.value_or(member) != member) continue;
      encoded.push_back(payloads[member].subspan(from[member], part.bytes));
      from[member] += part.bytes;
    }
    std::span<float> sums = InOnePiece(to, part.range);
    const bool apart = sums.empty();  // what is encoded as one piece is decoded as one
    if (apart) {
      if (whole_.size() < part.range.size()) whole_ = Buffer<float>(part.range.size());
      sums = whole_.host().first(part.range.size());
    }
    AccumulateQuantized(*setup_.config.dense_quantizer, encoded, to.scale, sums, pool_);
    if (!apart) continue;
    ForPieces(to, part.range, [&](Range piece, std::span<float> out) {
      std::ranges::copy(sums.subspan(piece.begin - part.range.begin, piece.size()), out.begin());
    });
  }
}

// Indices are relative to the exchange's first element.
void HostWork::TakeSelected(const ExchangeState& exchange, const Target& to) {
  const Range whole = exchange.op->range();
  const Payload& sent = exchange.payload;
  const auto& received = exchange.buffers.payloads;
  if (sent.coded) decoded_.Reserve(received.size() * sent.capacity);
  std::vector<SparsePayload> payloads;
  payloads.reserve(received.size());
  for (std::size_t rank = 0; rank < received.size(); ++rank) {
    const auto payload = received[rank].subspan(WholeBytesOf(sent, rank));
    payloads.push_back(sent.coded ? Decode(exchange, payload, rank) : ViewSparsePayload(payload));
  }
  const auto& windows = setup_.config.local_steps;
  if (windows && windows->to_median)
    rules_.ScaleToMedian(payloads, TensorsWithIndices(exchange), pool_);
  const bool by_senders = windows && windows->by_senders;
  for (const Range& range : sent.indexed) {
    ForPieces(to, range, [&](Range piece, std::span<float> out) {
      const Window window{piece.begin - whole.begin, whole.size()};
      AccumulateSparse(payloads, window, by_senders ? 1.0f : to.scale, out, pool_);
      if (by_senders) rules_.DivideBySenders(payloads, window.first, out);
    });
  }
}

SparsePayload HostWork::Decode(const ExchangeState& exchange, std::span<const std::byte> payload,
                               std::size_t rank) {
  const Range whole = exchange.op->range();
  const std::size_t capacity = exchange.payload.capacity;
  const PayloadCoding& coding = setup_.config.coding;
  const auto indices = decoded_.indices.host().subspan(rank * capacity, capacity);
  const auto values = decoded_.values.host().subspan(rank * capacity, capacity);
  if (!coding.of_selections()) return DecodePayload(payload, whole.size(), indices, values);
  const std::size_t count =
      DecodeSelections(exchange, payload, rank, indices, values,
                       [&](const Selection& part, auto bytes, auto to, auto values_to) {
                         const std::size_t n = part.range.size();
                         return coding.indices == IndexCoding::kU12
                                    ? DecodeChunks(coding.Of(part.density), bytes, n, to, values_to)
                                    : coder_.Decode(bytes, n, to, values_to, pool_);
                       });
  return {indices.first(count), values.first(count)};
}

}  // namespace sparfuse
