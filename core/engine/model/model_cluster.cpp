#include "core/engine/model/model_cluster.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/model/model_rank.hpp"

namespace sparfuse {

namespace {

// Returns the elements of part j in all contributions.
std::size_t EntriesOfPart(std::span<const Contribution> given, std::size_t j) {
  std::size_t entries = 0;
  for (const Contribution& each : given) {
    if (j < each.part_elements.size()) entries += each.part_elements[j];
  }
  return entries;
}

}  // namespace

ModelCluster::ModelCluster(const ModelConfig& config, std::uint64_t first, int steps, int simulated,
                           Recorded recorded)
    : config_(config),
      first_step_(first),
      steps_(steps),
      simulated_(simulated),
      needed_(simulated),
      recorded_(recorded),
      wire_seconds_(static_cast<std::size_t>(steps)),
      starting_(simulation_, 0),
      inter_node_(simulation_, 1.0),
      followers_(static_cast<std::size_t>(steps)) {
  if (recorded == Recorded::kAll) {
    const auto following = static_cast<std::size_t>(config.topology.ranks - simulated);
    for (std::vector<StepRecord>& step : followers_) step.resize(following);
  }
  const int machines = (simulated + config.ranks_per_machine - 1) / config.ranks_per_machine;
  for (int m = 0; m < machines; ++m) {
    machines_.push_back(std::make_unique<SharedResource>(simulation_, config.cores_per_machine));
  }
  for (int node = 0; node < config.topology.nodes(); ++node) {
    intra_node_.push_back(std::make_unique<SharedResource>(simulation_, 1.0));
  }
}

ModelCluster::~ModelCluster() = default;

std::optional<std::vector<ModelStep>> ModelCluster::Run(int traced_ranks) {
  for (int rank = 0; rank < simulated_; ++rank) {
    ranks_.push_back(std::make_unique<ModelRank>(*this, rank, rank < traced_ranks));
  }
  for (auto& rank : ranks_) rank->Begin();
  simulation_.Run();
  if (!enough()) return std::nullopt;
  std::vector<ModelStep> steps;
  for (int index = 0; index < steps_; ++index) steps.push_back(StepOf(index));
  return steps;
}

ModelStep ModelCluster::StepOf(int index) {
  const auto step = static_cast<std::size_t>(index);
  ModelStep result;
  for (auto& rank : ranks_) {
    if (!rank->ended())
      SPARFUSE_THROW(kInternal, "modelled step does not end: ", rank->Unfinished());
    result.records.push_back(rank->record(step));
    result.spans.push_back(rank->TakeSpans(step));
  }
  for (const StepRecord& counted : followers_[step]) {
    const int leader = LeaderOf(static_cast<int>(result.records.size()));
    StepRecord record = result.records[static_cast<std::size_t>(leader)];
    record.exchanges = counted.exchanges;
    record.payload_bytes = counted.payload_bytes;
    record.selected = counted.selected;
    record.sent_bytes = counted.sent_bytes;
    record.received_bytes = counted.received_bytes;
    record.messages_sent = counted.messages_sent;
    record.served = counted.served;
    record.summed = counted.summed;
    result.records.push_back(record);
  }
  result.spans.resize(result.records.size());
  result.wire_seconds = wire_seconds_[step];
  return result;
}

int ModelCluster::NeededFor(int rank, const Op& op) const {
  const int ranks = config_.topology.ranks;
  const int per_node = config_.topology.ranks_per_node;
  const bool within = IsWithinNode(op.channel);
  const bool between = IsBetweenNodes(op.channel);
  int needed = simulated_;
  // Roots differ from shard to shard; forwarded payloads differ if received ones do.
  if (const auto* exchange = op.If<ExchangeRequest>()) {
    if (exchange->owner() != 0 || std::holds_alternative<FromOwner>(exchange->pattern))
      return ranks;
    if (exchange->forwarded() != 0 && PayloadsDiffer(config_)) return ranks;
    const ModelRank& asks = *ranks_[static_cast<std::size_t>(rank)];
    if (std::holds_alternative<ToOwners>(exchange->pattern) && !within &&
        (PayloadsDiffer(config_) || !asks.IsOwnedAlike(op))) {
      // Simulates ranks of equal place on a node that owns nothing.
      const auto owners = static_cast<int>(exchange->selections().size());
      needed = std::max(needed, between ? (owners + 1) * per_node : owners + per_node);
    }
  }
  if (within || between) {
    if (ranks % per_node != 0) return ranks;
    if (within && op.sparse() && PayloadsDiffer(config_)) return ranks;
    needed = (needed + per_node - 1) / per_node * per_node;
  }
  return std::min(needed, ranks);
}

int ModelCluster::LeaderOf(int rank) const {
  const int place = config_.topology.LocalRankOf(rank);
  if (rank < simulated_) return rank;
  if (place >= simulated_) return simulated_ - 1;
  const int per_node = config_.topology.ranks_per_node;
  return place + (simulated_ - 1 - place) / per_node * per_node;
}

int ModelCluster::RankOf(const GroupKey& group, int member) const {
  const auto& [channel, which] = group;
  if (IsWithinNode(channel)) return which * config_.topology.ranks_per_node + member;
  return IsBetweenNodes(channel) ? member * config_.topology.ranks_per_node + which : member;
}

void ModelCluster::Arrive(int rank, Handle handle, Op& op) {
  const Topology& topology = config_.topology;
  if (followed()) needed_ = std::max(needed_, NeededFor(rank, op));
  if (!enough()) return;
  const Channel channel = op.channel;
  GroupKey group{channel, 0};
  int size = simulated_;
  if (IsWithinNode(channel)) {
    group.second = topology.NodeOf(rank);
    size = ranks_[static_cast<std::size_t>(rank)]->TopologyOf(channel).ranks;
  } else if (IsBetweenNodes(channel)) {
    group.second = topology.LocalRankOf(rank);
    size = (simulated_ - group.second + topology.ranks_per_node - 1) / topology.ranks_per_node;
  }
  if (size == 1) return Start(group, {{rank, handle, &op}});
  const std::size_t index = next_meeting_[{channel, rank}]++;
  const auto key = std::pair(group, index);
  std::vector<Member>& meeting = meetings_[key];
  meeting.push_back({rank, handle, &op});
  if (static_cast<int>(meeting.size()) < size) return;
  std::vector<Member> members = std::move(meeting);
  meetings_.erase(key);
  std::ranges::sort(members, {}, &Member::rank);
  Start(group, std::move(members));
}

void ModelCluster::PayloadAskedFor() {
  if (followed() && PayloadsDiffer(config_)) needed_ = config_.topology.ranks;
}

ModelCluster::Meeting& ModelCluster::NewMeeting() {
  if (meetings_over_.empty()) {
    return *all_meetings_.emplace_back(std::make_unique<Meeting>());
  }
  Meeting& meeting = *meetings_over_.back();
  meetings_over_.pop_back();
  return meeting;
}

// Simulated ranks come first in every group.
void ModelCluster::SetGiven(Meeting& meeting) {
  const std::vector<Member>& members = meeting.members;
  std::vector<Contribution>& given = meeting.given;
  given.clear();
  const auto give = [&](const Member& like, int rank) {
    given.push_back(ranks_[static_cast<std::size_t>(like.rank)]->ContributionOf(*like.op, rank));
  };
  for (const Member& member : members) give(member, member.rank);
  if (meeting.ranks == members.size()) return;
  const bool differ = PayloadsDiffer(config_);
  const auto needs_all = [&](const Member& leader) {
    // A rank's number decides its part, so its leader's contribution does not fit, unless all parts
    // are even.
    const auto* exchange = leader.op->If<ExchangeRequest>();
    return exchange && exchange->shared() && !exchange->selections().empty() &&
           (differ || !ranks_[static_cast<std::size_t>(leader.rank)]->GivesAnEvenPart(*leader.op));
  };
  if (members.size() == 1 && !differ) {  // all ranks follow it
    if (needs_all(members.front())) needed_ = config_.topology.ranks;
    return;
  }
  given.reserve(meeting.ranks);
  for (std::size_t m = members.size(); m < meeting.ranks; ++m) {
    const int rank = RankOf(meeting.group, static_cast<int>(m));
    const auto like = static_cast<std::size_t>(
        std::ranges::find(members, LeaderOf(rank), &Member::rank) - members.begin());
    if (needs_all(members[like])) needed_ = config_.topology.ranks;
    if (differ) {
      give(members[like], rank);
    } else {
      given.push_back(given[like]);
    }
  }
}

bool ModelCluster::SetEvenRounds(Meeting& meeting, const Topology& topology) const {
  const Contribution& given = meeting.given.front();
  if (recorded_ == Recorded::kAll || meeting.given.size() > 1 || !given.part_bytes.empty())
    return false;
  const Op& first = *meeting.members.front().op;
  if (!first.If<ExchangeRequest>()) return false;
  const Collective& collective =
      CollectiveOf(first.exchange(), config_.dense_collective, config_.sparse_collective);
  return AddModelledEvenRounds(collective, given.payload_bytes, topology, config_.cost.all_gather,
                               meeting.rounds);
}

void ModelCluster::SetRounds(Meeting& meeting, const Topology& topology) const {
  meeting.rounds.rounds.clear();
  meeting.rounds.per_rank.clear();
  meeting.rounds.sums.reset();
  meeting.rounds.dense_sums = meeting.rounds.on_host = false;
  meeting.rounds.served.clear();
  if (SetEvenRounds(meeting, topology)) return;
  const Op& first = *meeting.members.front().op;
  if (const auto* negotiate = first.If<NegotiateRequest>()) {
    meeting.rounds = AllReduceMaxRounds(negotiate->values.size(), topology);
    return;
  }
  const ExchangeRequest& exchange = first.exchange();
  const Range range = first.range();
  ExchangeSizes sizes;
  sizes.shape = {range.size(),
                 meeting.given.front().kept,
                 first.step,
                 {},
                 static_cast<std::size_t>(exchange.owner())};
  if (const SharedRange* shared = exchange.shared()) {
    sizes.shape.kept = KeptCount(config_, range, shared->density);
  }
  sizes.payload_bytes.reserve(meeting.ranks);
  sizes.part_bytes.reserve(meeting.ranks);
  for (std::size_t rank = 0; rank < meeting.ranks; ++rank) {
    sizes.payload_bytes.push_back(meeting.GivenBy(rank).payload_bytes);
    sizes.part_bytes.push_back(meeting.GivenBy(rank).part_bytes);
  }
  const Collective& collective =
      CollectiveOf(exchange, config_.dense_collective, config_.sparse_collective);
  std::vector<ExchangedTensor> tensors;
  if (first.sparse() && collective.traits().by_tensor) {
    tensors = TensorsOfExchange(config_.layout, range);
  }
  sizes.shape.tensors = tensors;
  collective.Expect(config_.overlap, topology, sizes);
  meeting.rounds = ModelledRounds(collective, sizes, topology, config_.cost.all_gather);
}

SharedResource& ModelCluster::LinkOf(const GroupKey& group, LinkClass link) {
  if (link == LinkClass::kInterNode) return inter_node_;
  const std::size_t node = IsWithinNode(group.first) ? static_cast<std::size_t>(group.second) : 0;
  return *intra_node_[node];
}

ModelCluster::GivenBytes ModelCluster::BytesGiven(const Meeting& meeting) {
  GivenBytes bytes;
  for (std::size_t rank = 0; rank < meeting.ranks; ++rank) {
    const Contribution& given = meeting.GivenBy(rank);
    const std::uint64_t stated = given.payload_bytes + given.chosen_bytes;
    const auto of_rank =
        static_cast<double>(stated > 0 ? stated : given.elements * kSparseElementBytes);
    bytes.most = std::max(bytes.most, of_rank);
    bytes.all += of_rank;
  }
  return bytes;
}

double ModelCluster::StagedElements(const Meeting& meeting) const {
  const RoundPlan& rounds = meeting.rounds;
  const Op& first = *meeting.members.front().op;
  if (!first.sparse() || !config_.cost.stages_payloads)
    return static_cast<double>(first.elements());
  const auto [most, all] = BytesGiven(meeting);
  const bool in_parts = !meeting.given.front().part_bytes.empty();
  const double received =
      rounds.sums ? static_cast<double>(*rounds.sums *
                                        (rounds.dense_sums ? sizeof(float) : kSparseElementBytes))
                  : all / (in_parts ? static_cast<double>(meeting.ranks) : 1.0);
  return CostModel::StagedElements(most, received);
}

CostModel::Phases ModelCluster::PhasesOf(const Meeting& meeting) const {
  const CostModel& cost = config_.cost;
  const RoundPlan& rounds = meeting.rounds;
  const Op& exchange = *meeting.members.front().op;
  const auto* asked = exchange.If<ExchangeRequest>();
  const auto* halves = asked != nullptr ? std::get_if<HalvesSum>(&asked->pattern) : nullptr;
  // A library adds halves as it adds floats. A ring of ours keeps the rounding errors.
  const bool of_library =
      asked != nullptr && (std::holds_alternative<DenseSum>(asked->pattern) ||
                           (halves != nullptr && halves->halves.residual.empty()));
  const bool plain = exchange.sparse() && config_.coding == PayloadCoding{};
  CostModel::Phases phases =
      of_library ? cost.PhasesOf(rounds, *config_.dense_collective, exchange.payload_bytes)
                 : cost.PhasesOf(rounds, plain ? cost.ByteFactor(CollectiveOf(
                                                     exchange.exchange(), config_.dense_collective,
                                                     config_.sparse_collective))
                                               : 1);
  const int ranks = config_.topology.ranks;
  phases.latency_seconds += cost.HostElementSeconds(StagedElements(meeting), ranks);
  if (cost.host_in_line) phases.latency_seconds += cost.ExchangeHostSeconds(ranks);
  if (cost.sum_host_seconds_per_entry > 0 && rounds.on_host)
    phases.latency_seconds += cost.HostSumSeconds(BytesGiven(meeting).most, ranks);
  return phases;
}

double ModelCluster::OverlapOf(const ModelRank& rank, const Op& exchange) const {
  const CostModel& cost = config_.cost;
  if (!exchange.sparse()) return cost.overlap;
  const double carried = cost.payload_overlap.value_or(cost.overlap);
  return rank.SelectsFromSeveral(exchange) ? cost.fused_overlap.value_or(carried) : carried;
}

void ModelCluster::ComputeEnded() {
  if (++compute_ended_ == simulated_) ForLinks(&SharedResource::Release);
}

void ModelCluster::ComputeBegins() {
  if (compute_ended_-- == simulated_) ForLinks(&SharedResource::Hold);
}

void ModelCluster::BuffersAreHere(int rank) {
  if (rank != 0) return;
  wire_seconds_[static_cast<std::size_t>(ranks_.front()->index())] +=
      config_.cost.buffers.link_seconds;
}

void ModelCluster::Taken(int rank, Handle handle, int index) {
  if (rank != 0) return;
  const auto counts = untaken_.find(handle);
  if (counts == untaken_.end()) return;
  const Op& exchange = ranks_.front()->ExchangeOf(handle);
  for (const FollowerCounts& each : counts->second) {
    CountExchange(exchange, each.traffic, each.given, each.result, FollowerOf(each.rank, index));
  }
  untaken_.erase(counts);
}

void ModelCluster::SelectingInHooks(int change) {
  selecting_ += change;
  ForLinks(&SharedResource::SetSpeed, selecting_ > 0 ? 0.0 : 1.0);
}

void ModelCluster::ExchangesUnderWay(int change) {
  under_way_ += change;
  const double speed = under_way_ > 0 ? 1 / config_.cost.compute_slowdown : 1;
  for (const auto& machine : machines_) machine->SetSpeed(speed);
}

// Simulates the start-up time, then the links, with rounds within nodes and between them in turn,
// then each rank's additions on a core of its own.
void ModelCluster::Start(const GroupKey& group, std::vector<Member> members) {
  Meeting& meeting = NewMeeting();
  const auto simulated = static_cast<std::size_t>(members.front().rank);
  const Topology topology = ranks_[simulated]->TopologyOf(group.first);
  meeting.group = group;
  meeting.ranks = static_cast<std::size_t>(topology.ranks);
  meeting.members = std::move(members);
  SetGiven(meeting);
  if (!enough()) return;
  for (std::size_t i = 0; i < meeting.members.size(); ++i) {
    meeting.members[i].op->payload_bytes = meeting.GivenBy(i).payload_bytes;
  }
  SetRounds(meeting, topology);
  const Op& first = *meeting.members.front().op;
  meeting.phases = PhasesOf(meeting);
  if (simulated == 0) {
    wire_seconds_[static_cast<std::size_t>(ranks_.front()->index())] += meeting.phases.on_links();
  }
  if (const auto* negotiate = first.If<NegotiateRequest>()) {
    std::vector<std::int64_t> agreed = negotiate->values;
    for (const Member& member : meeting.members) {
      const auto& asked = member.op->If<NegotiateRequest>()->values;
      std::ranges::transform(agreed, asked, agreed.begin(), std::ranges::max);
    }
    for (const Member& member : meeting.members) {
      member.op->If<NegotiateRequest>()->values = agreed;
    }
  }
  if (meeting.phases.cpu_seconds > 0) {
    for (const Member& member : meeting.members)
      MachineOf(member.rank).Use(meeting.phases.cpu_seconds, [] {});
  }
  meeting.began = simulation_.now();
  meeting.share = OverlapOf(*ranks_[simulated], first);
  ExchangesUnderWay(1);
  starting_.Use(
      meeting.phases.latency_seconds,
      [this, &meeting] {
        LinkOf(meeting.group, LinkClass::kIntraNode)
            .Use(
                meeting.phases.link_seconds[static_cast<std::size_t>(LinkClass::kIntraNode)],
                [this, &meeting] { OnLinkBetween(meeting); }, meeting.share);
      },
      meeting.share);
}

void ModelCluster::OnLinkBetween(Meeting& meeting) {
  LinkOf(meeting.group, LinkClass::kInterNode)
      .Use(
          meeting.phases.link_seconds[static_cast<std::size_t>(LinkClass::kInterNode)],
          [this, &meeting] { AddUp(meeting); }, meeting.share);
}

void ModelCluster::AddUp(Meeting& meeting) {
  const double seconds = meeting.phases.local_seconds;
  if (seconds <= 0) return Finish(meeting);
  meeting.adding = meeting.members.size();
  for (const Member& member : meeting.members) {
    MachineOf(member.rank).Use(seconds, [this, &meeting] {
      if (--meeting.adding == 0) Finish(meeting);
    });
  }
}

void ModelCluster::CountForFollowers(int leader, const Op& exchange, const Traffic& traffic,
                                     const Contribution& given, const ExchangeResult& result) {
  const Topology& topology = config_.topology;
  for (int rank = leader + topology.ranks_per_node; rank < topology.ranks;
       rank += topology.ranks_per_node) {
    if (rank < simulated_) return;  // it is simulated, and later ranks follow it
    CountExchange(exchange, traffic, given, result,
                  FollowerOf(rank, ranks_[static_cast<std::size_t>(leader)]->index()));
  }
}

void ModelCluster::Finish(Meeting& meeting) {
  ExchangesUnderWay(-1);
  const RoundPlan& rounds = meeting.rounds;
  std::size_t entries = 0;
  for (const Contribution& given : meeting.given) entries += given.elements;
  if (meeting.given.size() == 1) entries *= meeting.ranks;
  if (rounds.sums) entries = *rounds.sums;
  const Op& first = *meeting.members.front().op;
  // The rank's step may end when it learns that the exchange is over.
  const int index_of_first =
      ranks_[static_cast<std::size_t>(meeting.members.front().rank)]->index();
  const auto* exchange = first.If<ExchangeRequest>();
  const auto* to_owners = exchange ? std::get_if<ToOwners>(&exchange->pattern) : nullptr;
  const bool counts = recorded_ == Recorded::kAll;
  const std::size_t heard = counts ? meeting.ranks : meeting.members.size();
  for (std::size_t i = 0; i < heard; ++i) {
    const Contribution& given = meeting.GivenBy(i);
    if (to_owners) {
      const std::size_t part =
          (i + meeting.ranks - static_cast<std::size_t>(to_owners->owner)) % meeting.ranks;
      entries = EntriesOfPart(meeting.given, part);
      if (meeting.given.size() == 1) entries *= meeting.ranks;
    }
    const ExchangeResult result{entries, rounds.sums.has_value(), rounds.dense_sums,
                                rounds.served.empty() ? 0 : rounds.served[i]};
    const Traffic traffic = rounds.per_rank.empty() ? Traffic{} : rounds.per_rank[i];
    if (i < meeting.members.size()) {
      const Member& member = meeting.members[i];
      if (counts && IsWithinNode(meeting.group.first)) {
        CountForFollowers(member.rank, *member.op, traffic, given, result);
      }
      ranks_[static_cast<std::size_t>(member.rank)]->ExchangeDone(member.handle, meeting.began,
                                                                  traffic, given, result);
    } else {
      const int rank = RankOf(meeting.group, static_cast<int>(i));
      const Member& front = meeting.members.front();
      if (meeting.group.first == Channel::kBackground) {
        untaken_[front.handle].push_back({rank, traffic, given, result});
      } else {
        CountExchange(first, traffic, given, result, FollowerOf(rank, index_of_first));
      }
    }
  }
  meetings_over_.push_back(&meeting);
}

std::vector<ModelStep> SimulateSteps(const ModelConfig& config, std::uint64_t first, int steps,
                                     int traced_ranks, Recorded recorded) {
  const int ranks = config.topology.ranks;
  const bool alone = config.ranks_per_machine == 1;  // no rank slows another
  int simulated = alone ? std::clamp(traced_ranks, 1, ranks) : ranks;
  for (;;) {
    ModelCluster cluster(config, first, steps, simulated, recorded);
    if (auto result = cluster.Run(traced_ranks)) return *std::move(result);
    simulated = cluster.needed();
  }
}

ModelStep SimulateStep(const ModelConfig& config, std::uint64_t step, int traced_ranks,
                       Recorded recorded) {
  return std::move(SimulateSteps(config, step, 1, traced_ranks, recorded).front());
}

std::vector<ModelStep> SimulateWindow(const ModelConfig& config, int traced_ranks) {
  const auto every = static_cast<int>(config.local_steps->every);
  std::vector<ModelStep> steps = SimulateSteps(config, 0, 2 * every, traced_ranks);
  steps.erase(steps.begin(), steps.begin() + every);
  return steps;
}

std::size_t MethodMemoryBytes(const ModelConfig& config) {
  if (!config.local_steps) return 0;
  const LocalSteps& steps = *config.local_steps;
  const std::size_t arrays =
      1 + (steps.has_state() ? 1 : 0) + (steps.outer == OuterRule::kElastic ? 1 : 0);
  std::map<std::uint16_t, std::size_t> fragments;  // elements
  for (const Unit& unit : config.plan.units) {
    for (std::size_t t = unit.first; t < unit.last; ++t) {
      fragments[unit.date] += config.layout.tensor(t).numel;
    }
  }
  std::size_t largest = 0;  // the only one under way
  for (const auto& [date, elements] : fragments) largest = std::max(largest, elements);
  const std::size_t sent = steps.inner == InnerState::kAverage ? config.inner_arrays : 0;
  return (arrays * config.layout.numel() + (1 + sent) * largest) * sizeof(float);
}

}  // namespace sparfuse
