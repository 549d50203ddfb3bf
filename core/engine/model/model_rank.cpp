#include "core/engine/model/model_rank.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/base/fnv.hpp"
#include "core/base/random_stream.hpp"

namespace sparfuse {

namespace {

// Draws from (0, 1) by a key: the same number at any place and in any order.
double Draw(std::initializer_list<std::uint64_t> key) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  std::uint64_t state = kGolden;
  for (const std::uint64_t part : key) state = Mix64((state ^ part) + kGolden);
  return (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
}

// Returns 0 for the residual that most selections have.
std::uint64_t KeyOf(std::string_view residual) {
  return residual == SparsifyRequest().residual ? 0 : FnvOf(residual);
}

}  // namespace

std::size_t KeptCount(const ModelConfig& config, Range range, double density) {
  const std::size_t n = range.size();
  if (density >= 1) return n;
  if (config.selector == nullptr) return KeptCount(n, density);
  const TensorEntry& tensor = config.layout.tensor(config.layout.PositionOf(range.begin));
  std::span<const std::int64_t> shape;
  if (range == tensor.range()) shape = tensor.shape;
  return config.selector->Count(n, shape, density);
}

bool PayloadsDiffer(const ModelConfig& config) {
  return config.selection.sigma != 0 && !config.index_shared;
}

std::size_t SelectedCount(const ModelConfig& config, const SparsifyRequest& sparsify,
                          std::size_t kept, int rank, std::uint64_t step) {
  const SelectionModel& model = config.selection;
  if (model.sigma == 0 && model.mean == 0) return kept;
  const int of = sparsify.copy_of.value_or(rank);
  const std::uint64_t who = config.index_shared ? 0 : static_cast<std::uint64_t>(of) + 1;
  const std::uint64_t key = KeyOf(sparsify.residual);
  const double u = Draw({config.seed, step, who, sparsify.range.begin, key});
  const double v = Draw({config.seed, step, who, sparsify.range.begin, key + 1});
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  const double count = static_cast<double>(kept) * std::exp(model.mean + model.sigma * normal);
  const std::size_t room =
      SlotCapacity(sparsify.range.size(), sparsify.density, config.unbounded_count);
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::lround(count)), 1,
                                 std::max(room, kept));
}

void CountExchange(const Op& exchange, const Traffic& traffic, const Contribution& given,
                   const ExchangeResult& result, StepRecord& record) {
  if (!exchange.If<ExchangeRequest>()) return;
  ++record.exchanges;
  record.payload_bytes += given.payload_bytes + given.chosen_bytes;
  record.selected += static_cast<std::uint64_t>(exchange.exchange().counts) * given.elements;
  record.sent_bytes += traffic.bytes_sent;
  record.received_bytes += traffic.bytes_received;
  record.messages_sent += traffic.messages_sent;
  record.served += result.served;
  if (result.summed && exchange.sparse()) record.summed += result.entries;
}

ModelRank::ModelRank(ModelCluster& cluster, int rank, bool traced)
    : StepScheduler(cluster.config().layout, cluster.config().plan, cluster.config().topology, rank,
                    cluster.config().cost.host_in_line ? 0
                                                       : cluster.config().cost.ExchangeHostSeconds(
                                                             cluster.config().topology.ranks)),
      cluster_(cluster),
      strategy_(cluster.config().make_strategy()),
      traced_(traced),
      spans_(static_cast<std::size_t>(cluster.steps())) {}

void ModelRank::Begin() {
  BeginStep();
  RunProgram();
}

void ModelRank::BeginStep() {
  results_.clear();
  kept_.clear();
  std::erase_if(background_results_, [this](const auto& entry) { return op(entry.first).taken; });
  ResetStep();
  phase_ = Phase::kBegin;
  complete_ = false;
  next_tensor_ = 0;
  micro_step_ = 0;
  record_ = {};
  step_began_ = Now();
  strategy_->StepBegin(*this);
}

void ModelRank::EndStep() {
  record_.step_seconds = Now() - step_began_;
  records_.push_back(record_);
  if (index_ + 1 == cluster_.steps()) {
    phase_ = Phase::kEnded;
    return;
  }
  ++index_;
  cluster_.ComputeBegins();
  BeginStep();
}

void ModelRank::ExchangeDone(Handle handle, double began, const Traffic& traffic,
                             const Contribution& given, const ExchangeResult& result) {
  const Op& done = op(handle);
  if (handle >= kFirstInBackground) {
    untaken_[handle] = {began, Now(), traffic, given};
    ResultOf(handle) = result;
    Finish(handle);
    return WakeCompute();
  }
  const bool negotiate = !done.If<ExchangeRequest>();
  Trace(negotiate ? SpanKind::kNegotiate : SpanKind::kExchange, ChannelName(done.channel),
        done.label(), began, done.payload_bytes);
  CountExchange(done, traffic, given, result, record_);
  if (!negotiate) ResultOf(handle) = result;
  Finish(handle);
  WakeCompute();
}

void ModelRank::EndWait(const std::string& label) {
  const auto it = waits_.find(label);
  record_.align_wait_seconds += Now() - it->second;
  Trace(SpanKind::kAlign, "align", label, it->second, 0);
  waits_.erase(it);
}

void ModelRank::Trace(SpanKind kind, std::string_view lane, std::string_view label, double begin,
                      std::uint64_t bytes) {
  if (!traced_) return;
  spans_[static_cast<std::size_t>(index_)].push_back({kind, std::string(lane), std::string(label),
                                                      begin - step_began_, Now() - step_began_,
                                                      bytes});
}

std::size_t ModelRank::KeptOf(Handle selection) const {
  if (kept_.size() < selection) kept_.resize(selection);
  std::size_t& kept = kept_[selection - 1];
  if (kept == 0) {
    const SparsifyRequest& part = Selecting(selection);
    kept = KeptCount(cluster_.config(), part.range, part.density);
  }
  return kept;
}

ExchangeResult& ModelRank::ResultOf(Handle exchange) {
  if (exchange >= kFirstInBackground) return background_results_[exchange];
  if (results_.size() < exchange) results_.resize(exchange);
  return results_[exchange - 1];
}

void ModelRank::StartLocal(Handle handle, Op& started) {
  if (started.lane == Lane::kSide && cluster_.config().cost.selects_in_hooks) {
    started.lane = Lane::kCompute;
    if (auto* sparsify = started.If<SparsifyRequest>()) sparsify->lane = Lane::kCompute;
  }
  const Lane lane = started.lane;
  lanes_[static_cast<std::size_t>(lane)].queue.push_back(handle);
  lane == Lane::kCompute ? WakeCompute() : WakeLane(lane);
}

Contribution ModelRank::ContributionOf(const Op& exchange, int rank) const {
  const ModelConfig& config = cluster_.config();
  if (!exchange.sparse()) {
    Contribution dense{exchange.elements(), exchange.elements(), exchange.payload_bytes};
    if (exchange.If<ExchangeRequest>()) {
      for (const Range& shard : exchange.exchange().shards()) {
        dense.part_bytes.push_back(shard.size() * sizeof(float));
      }
    }
    return dense;
  }
  Contribution given;
  const ExchangeRequest& request = exchange.exchange();
  if (request.forwarded() != 0) {
    given.elements = results_.at(request.forwarded() - 1).entries;
    given.payload_bytes = given.elements * kSparseElementBytes;
    return given;
  }
  std::uint64_t whole_bytes = 0;
  std::size_t whole_elements = 0;
  ExpectedSelection coded;  // of selections that are coded one by one
  const bool to_owners = std::holds_alternative<ToOwners>(request.pattern);
  for (const Handle selection : request.selections()) {
    const SparsifyRequest& part = Selecting(selection);
    const std::size_t kept = KeptOf(selection);
    const std::uint64_t bytes =
        rank == this->rank() ? op(selection).payload_bytes : SelectionBytes(part, kept, rank);
    given.kept += kept;
    given.payload_bytes += bytes;
    if (to_owners) {
      given.part_bytes.push_back(bytes);
      given.part_elements.push_back(IsWhole(part) ? part.range.size()
                                                  : bytes / kSparseElementBytes);
    }
    if (IsCodedAlone(part)) {
      const auto [elements, coded_bytes] =
          ExpectSelection(config.coding, SelectedElements(part, rank), part.range.size());
      coded.elements += elements;
      coded.bytes += coded_bytes;
    }
    if (!IsWhole(part)) continue;
    whole_bytes += bytes;
    whole_elements += part.range.size();
  }
  std::size_t selected = (given.payload_bytes - whole_bytes) / kSparseElementBytes;
  if (config.coding.of_selections()) {
    selected = coded.elements;
    given.payload_bytes = whole_bytes + coded.bytes;
  } else if (config.coding != PayloadCoding{} && whole_elements < exchange.elements()) {
    given.payload_bytes =
        whole_bytes + ExpectedPayloadBytes(config.coding, selected, exchange.range().size());
  }
  const CollectiveTraits traits = config.sparse_collective->traits();
  given.elements = traits.selects ? given.kept : whole_elements + selected;
  if (traits.selects && !traits.by_tensor) given.chosen_bytes = given.kept * kSparseElementBytes;
  return given;
}

bool ModelRank::SelectsFromSeveral(const Op& exchange) const {
  const auto* request = exchange.If<ExchangeRequest>();
  if (request == nullptr) return false;
  return std::ranges::any_of(request->selections(), [&](Handle selection) {
    const Range& range = Selecting(selection).range;
    return range.end > layout().tensor(layout().PositionOf(range.begin)).range().end;
  });
}

bool ModelRank::IsOwnedAlike(const Op& to_owners) const {
  const std::span<const Handle> selections = to_owners.exchange().selections();
  if (selections.size() != static_cast<std::size_t>(TopologyOf(to_owners.channel).ranks))
    return false;
  const std::size_t size = Selecting(selections.front()).range.size();
  return std::ranges::all_of(
      selections, [&](Handle selection) { return Selecting(selection).range.size() == size; });
}

bool ModelRank::GivesAnEvenPart(const Op& shared) const {
  const auto members = static_cast<std::size_t>(TopologyOf(shared.channel).ranks);
  std::size_t given = 0;
  for (const Handle selection : shared.exchange().selections())
    given += Selecting(selection).range.size();
  const SharedRange& of = *shared.exchange().shared();
  return given == of.largest && given * members == of.range.size();
}

std::uint64_t ModelRank::PayloadBytes(Handle sparsified) const {
  cluster_.PayloadAskedFor();
  return StepScheduler::PayloadBytes(sparsified);
}

void ModelRank::StartTimerOp(Handle handle, double seconds) {
  cluster_.simulation().After(seconds, [this, handle, index = index_] {
    if (phase_ == Phase::kEnded || index_ != index) return;
    Finish(handle);
    WakeCompute();
  });
}

void ModelRank::RecordExposed() {
  if (Now() <= idle_since_) return;
  record_.exposed_communication_seconds += Now() - idle_since_;
  Trace(SpanKind::kExposed, "compute", "", idle_since_, 0);
}

void ModelRank::WakeCompute() {
  LaneState& lane = lanes_[0];
  if (lane.busy || phase_ == Phase::kEnded || in_program_) return;
  if (!lane.queue.empty()) {
    if (Waits()) RecordExposed();
    Work(Lane::kCompute);
  } else if (!Waits() || complete_) {
    RunProgram();
  }
}

void ModelRank::WakeLane(Lane which) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  if (!lane.busy && !lane.queue.empty()) Work(which);
}

void ModelRank::Work(Lane which) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  lane.handle = lane.queue.front();
  lane.queue.pop_front();
  lane.busy = true;
  lane.began = Now();
  lane.in_hook = which == Lane::kCompute && cluster_.config().cost.selects_in_hooks &&
                 op(lane.handle).If<SparsifyRequest>();
  if (lane.in_hook) cluster_.SelectingInHooks(1);
  cluster_.MachineOf(rank()).Use(LocalSeconds(lane.handle), [this, which] { WorkDone(which); });
}

void ModelRank::WorkDone(Lane which) {
  LaneState& lane = lanes_[static_cast<std::size_t>(which)];
  if (lane.in_hook) cluster_.SelectingInHooks(-1);
  lane.busy = false;
  EndWork(which, lane.handle, lane.began);
  which == Lane::kCompute ? WakeCompute() : WakeLane(which);
  WakeCompute();
}

void ModelRank::EndWork(Lane lane, Handle handle, double began) {
  const Op& done = op(handle);
  const SpanKind kind = SpanKindOf(done);
  std::string_view label;
  if (const auto* pack = done.If<PackRequest>()) label = layout().tensor(pack->tensor).name;
  if (lane == Lane::kCompute) {
    (kind == SpanKind::kDecompress ? record_.decompress_seconds
     : kind == SpanKind::kOuter    ? record_.outer_seconds
                                   : record_.sparsify_seconds) += Now() - began;
    idle_since_ = Now();
  }
  Trace(kind, LaneName(lane), label, began, done.payload_bytes);
  if (const auto taken = untaken_.find(done.summed); taken != untaken_.end()) {
    const Op& exchange = op(done.summed);
    const Exchanged& of = taken->second;
    CountExchange(exchange, of.traffic, of.given, ResultOf(done.summed), record_);
    cluster_.Taken(rank(), done.summed, index_);
    if (traced_) {
      spans_[static_cast<std::size_t>(index_)].push_back(
          {SpanKind::kExchange, std::string(ChannelName(Channel::kBackground)), exchange.label(),
           std::max(0.0, of.began - step_began_), std::max(0.0, of.ended - step_began_),
           exchange.payload_bytes});
    }
    untaken_.erase(taken);
  }
  Finish(handle);
}

void ModelRank::Compute(double seconds, SpanKind kind, double* total, std::string_view label,
                        Continuation next) {
  lanes_[0].busy = true;
  piece_ = {kind, total, label, std::move(next), Now()};
  const auto done = [this] { PieceDone(); };
  if (cluster_.config().backward.sleeps && kind != SpanKind::kUpdate) {
    cluster_.simulation().After(seconds, done);
  } else {
    cluster_.MachineOf(rank()).Use(seconds, done);
  }
}

void ModelRank::PieceDone() {
  lanes_[0].busy = false;
  const Piece done = std::exchange(piece_, {});
  if (done.total != nullptr) {
    *done.total += Now() - done.began;
    Trace(done.kind, "compute", done.label, done.began, 0);
  }
  in_program_ = true;
  done.next();
  in_program_ = false;
  idle_since_ = Now();
  WakeCompute();
}

// With local steps nothing happens when a gradient is ready. Windows of many steps are thus
// simulated in a time that does not depend on the number of tensors.
void ModelRank::ComputeBackwardAtOnce() {
  const std::vector<double>& each = cluster_.config().backward.backward_seconds;
  const double all = std::accumulate(each.begin(), each.end(), 0.0);
  Compute(all, SpanKind::kBackward, nullptr, "", [this, &each, all, began = Now()] {
    const double took = Now() - began;
    record_.backward_seconds += took;
    phase_ = Phase::kTail;
    if (!traced_) return;
    const double from = began - step_began_;
    double before = 0;
    for (std::size_t tensor = 0; tensor < each.size(); ++tensor) {
      const double after = before + (all > 0 ? each[tensor] / all : 0);
      spans_[static_cast<std::size_t>(index_)].push_back(
          {SpanKind::kBackward, std::string(LaneName(Lane::kCompute)), layout().tensor(tensor).name,
           from + took * before, from + took * after, 0});
      before = after;
    }
  });
}

void ModelRank::AwaitBuffers() {
  phase_ = Phase::kForward;
  const CostModel& cost = cluster_.config().cost;
  const double seconds = cost.BroadcastSeconds(cluster_.config().topology.ranks);
  if (seconds <= 0 || cluster_.config().local_steps) return RunProgram();
  lanes_[0].busy = true;
  cluster_.simulation().After(seconds, [this, &cost, began = Now()] {
    lanes_[0].busy = false;
    record_.exposed_communication_seconds += Now() - began;
    Trace(SpanKind::kExchange, ChannelName(Channel::kData), kBuffersLabel, began,
          static_cast<std::uint64_t>(cost.buffers.bytes));
    Trace(SpanKind::kExposed, "compute", "", began, 0);
    cluster_.BuffersAreHere(rank());
    idle_since_ = Now();
    WakeCompute();
  });
}

void ModelRank::RunProgram() {
  const BackwardProfile& profile = cluster_.config().backward;
  switch (phase_) {
    case Phase::kBegin:
      return Compute(profile.begin_seconds, SpanKind::kForward, nullptr, "",
                     [this] { phase_ = Phase::kBuffers; });
    case Phase::kBuffers:
      return AwaitBuffers();
    case Phase::kForward:
      return Compute(profile.forward_seconds, SpanKind::kForward, &record_.forward_seconds, "",
                     [this, last = cluster_.config().micro_steps - 1] {
                       phase_ = micro_step_++ < last ? Phase::kEarlierBackward : Phase::kBackward;
                     });
    case Phase::kEarlierBackward: {
      const std::vector<double>& each = profile.backward_seconds;
      return Compute(std::accumulate(each.begin(), each.end(), profile.tail_seconds),
                     SpanKind::kBackward, &record_.backward_seconds, "micro-step",
                     [this] { phase_ = Phase::kNextBatch; });
    }
    case Phase::kNextBatch:
      return Compute(profile.begin_seconds, SpanKind::kForward, nullptr, "",
                     [this] { phase_ = Phase::kForward; });
    case Phase::kBackward: {
      if (cluster_.config().local_steps) return ComputeBackwardAtOnce();
      const std::size_t tensor = next_tensor_++;
      return Compute(profile.backward_seconds[tensor], SpanKind::kBackward,
                     &record_.backward_seconds, layout().tensor(tensor).name, [this, tensor] {
                       if (next_tensor_ == layout().tensors()) phase_ = Phase::kTail;
                       strategy_->GradientReady(*this, tensor);
                     });
    }
    case Phase::kTail:
      return Compute(profile.tail_seconds, SpanKind::kBackward, &record_.backward_seconds, "end",
                     [this] {
                       phase_ = Phase::kFinishing;
                       cluster_.ComputeEnded();
                       strategy_->BackwardEnd(*this);
                       AwaitEnd();
                     });
    case Phase::kFinishing:
      RecordExposed();
      phase_ = Phase::kUpdate;
      return Compute(profile.update_seconds, SpanKind::kUpdate, &record_.update_seconds, "",
                     [this] {
                       if (!cluster_.config().local_steps) return EndStep();
                       phase_ = Phase::kSynchronising;
                       complete_ = false;
                       Synchronise([this] { strategy_->Updated(*this); });
                     });
    case Phase::kSynchronising:
      RecordExposed();
      EndStep();
      return RunProgram();
    case Phase::kUpdate:
    case Phase::kEnded:
      return;
  }
}

}  // namespace sparfuse
