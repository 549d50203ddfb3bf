// Says what a modelled rank's local operations take: packs, selections and their coding, applies.
#include <algorithm>
#include <string_view>

#include "core/engine/model/model_rank.hpp"

namespace sparfuse {

namespace {

// Returns the floats of memory read and written for an element; a copy has two.
double FloatsMoved(PackSource source) {
  if (source == PackSource::kElastic) return 4;
  return source == PackSource::kDifference ? 3 : 2;
}

// Returns the same for an outer rule: the sum, the anchor, the state and the parameters.
double FloatsMoved(const LocalSteps& steps) {
  const double own = steps.mix > 0 && steps.mix < 1 ? 2 : steps.mix == 1 ? 0 : 1;
  switch (steps.outer) {
    case OuterRule::kAverage:
      return 2 + own;
    case OuterRule::kSgd:
      return 3 + own;
    case OuterRule::kMomentum:  // clipped: the state is read for its norm, then scaled
      return 5 + own + (steps.outer_clip > 0 ? 3 : 0);
    case OuterRule::kNesterov:
      return 5 + own;
    case OuterRule::kElastic:
      break;
  }
  return 6;
}

}  // namespace

double ModelRank::LocalSeconds(Handle handle) {
  Op& started = op(handle);
  const CostModel& cost = cluster_.config().cost;
  const auto n = static_cast<double>(started.elements());
  if (const auto* pack = started.If<PackRequest>()) {
    return cost.dispatch_seconds + cost.pack_seconds(n) * FloatsMoved(pack->source) / 2;
  }
  if (const auto* sparsify = started.If<SparsifyRequest>()) {
    started.payload_bytes = SelectionBytes(*sparsify, rank());
    return cost.dispatch_seconds + (SelectionSeconds(*sparsify) + CodingSeconds(*sparsify)) *
                                       (sparsify->lane == Lane::kSide ? cost.side_slowdown : 1);
  }
  const auto* apply = started.If<ApplyRequest>();
  if (apply != nullptr && apply->to == ApplyTo::kInnerState) {  // zeros are only written
    const double floats = apply->own ? static_cast<double>(inner_arrays()) : 2;
    return cost.dispatch_seconds + cost.scale_seconds(n) * floats / 2;
  }
  if (apply != nullptr && apply->to == ApplyTo::kAnchor) {
    const LocalSteps& steps = *cluster_.config().local_steps;
    const double floats = apply->own ? 2 : FloatsMoved(steps);
    const double outer = cost.scale_seconds(n) * floats / 2;
    if (apply->own || !op(started.summed).sparse()) return cost.dispatch_seconds + outer;
    // Counting senders, and scaling by norms, reads the payloads once more.
    const int passes = 1 + (steps.by_senders ? 1 : 0) + (steps.to_median ? 1 : 0);
    return outer + passes * DecompressSeconds(started);
  }
  return DecompressSeconds(started);
}

double ModelRank::DecompressSeconds(const Op& started) {
  const CostModel& cost = cluster_.config().cost;
  const auto n = static_cast<double>(started.elements());
  const ExchangeResult& result = ResultOf(started.summed);
  const ExchangeRequest& exchange = op(started.summed).exchange();
  if (!exchange.sparse() || result.dense) return cost.dispatch_seconds + cost.scale_seconds(n);
  std::size_t elements = started.elements();
  if (const auto* to_owners = std::get_if<ToOwners>(&exchange.pattern)) {
    elements = Selecting(to_owners->selections[PartOf(exchange)]).range.size();
  }
  const std::string_view coder = CoderOf(exchange);
  const SharedRange* shared = exchange.shared();
  if (shared != nullptr && shared->density >= 1 && !shared->owned.empty() &&
      cluster_.config().dense_quantizer != nullptr) {  // part by part, each from one member
    const std::size_t parts = shared->owned.size();
    return cost.dispatch_seconds +
           static_cast<double>(parts) *
               cost.DecompressSeconds(coder, elements / parts, result.entries / parts, 1);
  }
  return cost.dispatch_seconds +
         (DecodingSeconds(exchange) + cost.DecompressSeconds(coder, elements, result.entries,
                                                             TopologyOf(exchange.channel).ranks));
}

std::uint64_t ModelRank::SelectionBytes(const SparsifyRequest& sparsify, int rank) const {
  return SelectionBytes(sparsify, KeptCount(cluster_.config(), sparsify.range, sparsify.density),
                        rank);
}

std::uint64_t ModelRank::SelectionBytes(const SparsifyRequest& sparsify, std::size_t kept,
                                        int rank) const {
  const ModelConfig& config = cluster_.config();
  const std::size_t n = sparsify.range.size();
  if (IsWhole(sparsify)) return config.dense_quantizer->EncodedBytes(n);
  if (config.sparse_collective->traits().selects) return 0;  // x is accumulated, and stays
  if (sparsify.density >= 1) return n * kSparseElementBytes;
  return SelectedCount(config, sparsify, kept, rank, step()) * kSparseElementBytes;
}

double ModelRank::SelectionSeconds(const SparsifyRequest& sparsify) const {
  const ModelConfig& config = cluster_.config();
  const std::size_t n = sparsify.range.size();
  if (IsWhole(sparsify)) {
    const std::string_view quantizer = config.dense_quantizer->name();
    const auto on_host = config.cost.host_selection.find(quantizer);
    return sparsify.lane == Lane::kHost && on_host != config.cost.host_selection.end()
               ? on_host->second(n, sparsify.density)
               : config.cost.EncodeSeconds(quantizer, n);
  }
  if (config.sparse_collective->traits().selects || sparsify.density >= 1) {  // a checked copy
    return config.cost.pack_seconds(static_cast<double>(n));
  }
  switch (sparsify.lane) {
    case Lane::kHost:
      return config.cost.HostSelectionSeconds(config.sparsifier, n, sparsify.density);
    case Lane::kSide:
      return config.cost.SideSelectionSeconds(config.sparsifier, n, sparsify.density);
    case Lane::kCompute:
      break;
  }
  return config.cost.SelectionSeconds(config.sparsifier, n, sparsify.density);
}

double ModelRank::CodingSeconds(const SparsifyRequest& sparsify) const {
  const ModelConfig& config = cluster_.config();
  if (!IsCodedAlone(sparsify)) return 0;
  return config.cost.selection_coding.Seconds(
      WorkOfEncoding(config.coding, SelectedElements(sparsify, rank()), sparsify.range.size()));
}

double ModelRank::DecodingSeconds(const ExchangeRequest& exchange) const {
  const ModelConfig& config = cluster_.config();
  double seconds = 0;
  for (const Handle selection : exchange.selections()) {
    const SparsifyRequest& part = Selecting(selection);
    if (!IsCodedAlone(part)) continue;
    seconds += config.cost.selection_coding.Seconds(
        WorkOfDecoding(config.coding, SelectedElements(part, rank()), part.range.size()));
  }
  return seconds * TopologyOf(exchange.channel).ranks;
}

std::string_view ModelRank::CoderOf(const ExchangeRequest& exchange) const {
  const ModelConfig& config = cluster_.config();
  if (config.dense_quantizer == nullptr) return config.sparsifier;
  const auto is_whole = [&](Handle selection) { return IsWhole(Selecting(selection)); };
  const bool whole = exchange.shared() != nullptr
                         ? exchange.shared()->density >= 1
                         : std::ranges::all_of(exchange.selections(), is_whole);
  return whole || config.sparsifier.empty() ? config.dense_quantizer->name()
                                            : std::string_view(config.sparsifier);
}

}  // namespace sparfuse
