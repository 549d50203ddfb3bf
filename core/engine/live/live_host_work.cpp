// What lanes do on the host.
#include <algorithm>

#include "core/engine/live/live_engine.hpp"
#include "core/feedback/momentum/clipping.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {

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
  if (selection.velocity.size > 0) {
    Buffer<float>& growth = lanes_[static_cast<std::size_t>(lane)].growth;
    const MomentumOptions& options = config_.feedback.momentum;
    if (options.nesterov && growth.size() < selection.source.size) {
      growth = Buffer<float>(selection.source.size);
    }
    const double clip = config_.feedback.clip;
    const std::span<const float> gradient = selection.source.host();
    const float scale = clip > 0 ? ClipFactor(gradient, clip, PoolOf(lane)) : 1.0f;
    const std::span<const float> grown = AdvanceVelocity(
        options, gradient, scale, selection.velocity.host(), growth.host(), PoolOf(lane));
    selection.source = {grown.data(), grown.size(), {}};
  }
  const std::span<const float> source = selection.source.host();
  std::vector<float> x;
  if (verify_) {
    x.assign(source.begin(), source.end());
    for (std::size_t i = 0; i < selection.residual.size; ++i) x[i] += selection.residual.data[i];
  }
  if (selection.is_run) {
    EncodeRun(lane, selection);
    sparsify.payload_bytes = selection.run.size();
    if (verify_) CheckRunMass(x, selection.run.host(), selection.residual.host());
  } else {
    SelectInto(lane, selection, sparsify.density);
    sparsify.payload_bytes = selection.slot.count * kSparseElementBytes;
    if (verify_) {
      const auto indices = selection.slot.indices.host().first(selection.slot.count);
      const auto values = selection.slot.values.host().first(selection.slot.count);
      CheckMass(x, selection, {indices, values},
                selection.residual.size > 0 ? selection.residual.host() : source);
      CheckFibres(x, selection, indices);
    }
  }
}

void LiveEngine::SelectInto(Lane which, Selection& selection, double density) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  const SelectContext context{&PoolOf(which), &lane.workspace, &lane.counters, {}};
  const SelectSource source{selection.source, selection.residual};
  config_.sparsifier->Select(context, source, density, selection.info, selection.state.get(),
                             selection.slot);
  selection.missing = CountMissing(selection);
  const auto indices = selection.slot.indices.host().first(selection.slot.count);
  RoundToCoding(config_.coding, indices, selection.slot.values.host().first(selection.slot.count),
                selection.residual.host());
  if (selection.velocity.size > 0) {
    MaskVelocity(config_.feedback.momentum, indices, selection.velocity.host());
  }
}

void LiveEngine::EncodeRun(Lane which, Selection& selection) {
  const QuantizeContext context{&PoolOf(which), &lanes_[static_cast<std::size_t>(which)].workspace,
                                rank()};
  const SelectSource source{selection.source, selection.residual};
  config_.runs->Encode(context, source, selection.info, selection.run.host());
  selection.missing = 0;
  if (selection.velocity.size > 0 && config_.feedback.momentum.masking) {
    std::fill_n(selection.velocity.data, selection.velocity.size, 0.0f);
  }
}

// Tensors that have something to send and send nothing. Where nothing was selected, x is what is
// left.
std::uint64_t LiveEngine::CountMissing(const Selection& selection) const {
  const std::span<const float> unsent =
      selection.residual.size > 0 ? selection.residual.host() : selection.source.host();
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
  for (const Range& range : RangesWithIndices(exchange)) {
    AccumulateSparse(payloads, {range.begin - apply.range.begin, apply.range.size()}, scale,
                     AveragedRange(range), PoolOf(which));
  }
}

// Runs lie between them; what is between ranges is another exchange's.
std::vector<Range> LiveEngine::RangesWithIndices(const ExchangeState& exchange) {
  std::vector<Range> ranges;
  for (const Selection* part : exchange.parts) {
    if (part->is_run) continue;
    if (ranges.empty() || ranges.back().end != part->range.begin) {
      ranges.push_back(part->range);
    } else {
      ranges.back().end = part->range.end;
    }
  }
  return ranges;
}

}  // namespace sparfuse
