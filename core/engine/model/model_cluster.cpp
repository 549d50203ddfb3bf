#include "core/engine/model/model_cluster.hpp"

#include <algorithm>
#include <string>

#include "core/engine/exchanged_tensors.hpp"
#include "core/engine/model/model_rank.hpp"
#include "core/engine/model/selected_count.hpp"

namespace sparfuse {

ModelCluster::ModelCluster(const ModelConfig& config, std::uint64_t step, int simulated)
    : config_(config),
      step_(step),
      simulated_(simulated),
      starting_(simulation_, 0),
      inter_node_(simulation_, 1.0),
      followers_(static_cast<std::size_t>(config.topology.ranks - simulated)) {
  const int machines = (simulated + config.ranks_per_machine - 1) / config.ranks_per_machine;
  for (int m = 0; m < machines; ++m) {
    machines_.push_back(std::make_unique<SharedResource>(simulation_, config.cores_per_machine));
  }
  for (int node = 0; node < config.topology.nodes(); ++node) {
    intra_node_.push_back(std::make_unique<SharedResource>(simulation_, 1.0));
  }
  starting_.SetSpeed(config.cost.overlap);
  inter_node_.SetSpeed(config.cost.overlap);
  for (const auto& link : intra_node_) link->SetSpeed(config.cost.overlap);
}

ModelCluster::~ModelCluster() = default;

std::optional<ModelStep> ModelCluster::Run(int traced_ranks) {
  for (int rank = 0; rank < simulated_; ++rank) {
    ranks_.push_back(std::make_unique<ModelRank>(*this, rank, rank < traced_ranks));
  }
  for (auto& rank : ranks_) rank->Begin();
  simulation_.Run();
  if (all_needed_) return std::nullopt;
  ModelStep result;
  for (auto& rank : ranks_) {
    if (!rank->ended())
      SPARFUSE_THROW(kInternal, "modelled step does not end: " + rank->Unfinished());
    result.records.push_back(rank->record());
    result.spans.push_back(rank->TakeSpans());
  }
  for (const StepRecord& counted : followers_) {
    StepRecord& record = result.records.emplace_back(result.records.front());
    record.exchanges = counted.exchanges;
    record.payload_bytes = counted.payload_bytes;
    record.selected = counted.selected;
    record.sent_bytes = counted.sent_bytes;
    record.received_bytes = counted.received_bytes;
    record.messages_sent = counted.messages_sent;
    record.served = counted.served;
    record.summed = counted.summed;
  }
  result.spans.resize(result.records.size());
  return result;
}

void ModelCluster::Arrive(int rank, Handle handle, Op& op) {
  const Topology& topology = config_.topology;
  GroupKey group{op.channel, 0};
  int size = simulated_;
  if (op.channel == Channel::kIntraNode || op.channel == Channel::kInterNode) {
    all_needed_ |= followed();
    if (all_needed_) return;
  }
  if (op.channel == Channel::kIntraNode) {
    group.second = topology.NodeOf(rank);
    size =
        std::min(topology.ranks_per_node, topology.ranks - group.second * topology.ranks_per_node);
  } else if (op.channel == Channel::kInterNode) {
    group.second = topology.LocalRankOf(rank);
    size = (topology.ranks - group.second + topology.ranks_per_node - 1) / topology.ranks_per_node;
  }
  const std::size_t index = next_meeting_[{op.channel, rank}]++;
  const auto key = std::pair(group, index);
  std::vector<Member>& meeting = meetings_[key];
  meeting.push_back({rank, handle, &op});
  if (static_cast<int>(meeting.size()) < size) return;
  std::vector<Member> members = std::move(meeting);
  meetings_.erase(key);
  std::ranges::sort(members, {}, &Member::rank);
  Start(group, std::move(members));
}

void ModelCluster::PayloadAskedFor() { all_needed_ |= followed() && PayloadsDiffer(config_); }

std::vector<Contribution> ModelCluster::GivenBy(std::span<const Member> members) const {
  std::vector<Contribution> given;
  const auto give = [&](int simulated, const Op& op, int rank) {
    given.push_back(ranks_[static_cast<std::size_t>(simulated)]->ContributionOf(op, rank));
  };
  for (const Member& member : members) give(member.rank, *member.op, member.rank);
  if (!followed()) return given;
  const Member& first = members.front();
  const auto ranks = static_cast<std::size_t>(config_.topology.ranks);
  if (!PayloadsDiffer(config_)) given.resize(ranks, given.front());
  for (std::size_t rank = given.size(); rank < ranks; ++rank) {
    give(first.rank, *first.op, static_cast<int>(rank));
  }
  return given;
}

RoundPlan ModelCluster::RoundsOf(const Meeting& meeting, const Topology& topology) const {
  const Op& first = *meeting.members.front().op;
  if (first.kind == OpKind::kNegotiate) return AllReduceMaxRounds(first.values.size(), topology);
  ExchangeSizes sizes;
  sizes.shape = {first.range.size(), meeting.given.front().kept, step_, {}};
  for (const Contribution& given : meeting.given)
    sizes.payload_bytes.push_back(given.payload_bytes);
  const Collective& collective =
      first.selections.empty() ? *config_.dense_collective : *config_.sparse_collective;
  std::vector<ExchangedTensor> tensors;
  if (!first.selections.empty() && collective.traits().by_tensor) {
    tensors = TensorsOfExchange(config_.layout, first.range);
  }
  sizes.shape.tensors = tensors;
  collective.Expect(config_.overlap, topology, sizes);
  return ModelledRounds(collective, sizes, topology, config_.cost.all_gather);
}

SharedResource& ModelCluster::LinkOf(const GroupKey& group, LinkClass link) {
  if (link == LinkClass::kInterNode) return inter_node_;
  const std::size_t node =
      group.first == Channel::kIntraNode ? static_cast<std::size_t>(group.second) : 0;
  return *intra_node_[node];
}

CostModel::Phases ModelCluster::PhasesOf(const Op& exchange, const RoundPlan& rounds) const {
  const CostModel& cost = config_.cost;
  const bool dense = exchange.kind == OpKind::kExchange && exchange.selections.empty();
  CostModel::Phases phases =
      dense ? cost.PhasesOf(rounds, config_.dense_collective->descriptor(), exchange.payload_bytes)
            : cost.PhasesOf(rounds);
  phases.latency_seconds +=
      cost.exchange_seconds_per_element * static_cast<double>(exchange.elements());
  return phases;
}

void ModelCluster::ComputeEnded() {
  if (++compute_ended_ < simulated_) return;
  starting_.SetSpeed(1);
  inter_node_.SetSpeed(1);
  for (const auto& link : intra_node_) link->SetSpeed(1);
}

void ModelCluster::ExchangesUnderWay(int change) {
  under_way_ += change;
  const double speed = under_way_ > 0 ? 1 / config_.cost.compute_slowdown : 1;
  for (const auto& machine : machines_) machine->SetSpeed(speed);
}

// Start-up time, then the link, then what each rank adds on a core of its own.
void ModelCluster::Start(const GroupKey& group, std::vector<Member> members) {
  const auto meeting = std::make_shared<Meeting>();
  meeting->given = GivenBy(members);
  meeting->members = std::move(members);
  for (std::size_t i = 0; i < meeting->members.size(); ++i) {
    meeting->members[i].op->payload_bytes = meeting->given[i].payload_bytes;
  }
  Topology topology = config_.topology;
  if (group.first == Channel::kIntraNode) {
    topology = {meeting->ranks(), meeting->ranks()};
  } else if (group.first == Channel::kInterNode) {
    topology = {meeting->ranks(), 1};
  }
  const auto rounds = std::make_shared<RoundPlan>(RoundsOf(*meeting, topology));
  const Op& first = *meeting->members.front().op;
  const CostModel::Phases phases = PhasesOf(first, *rounds);
  if (first.kind == OpKind::kNegotiate) {
    std::vector<std::int64_t> agreed = first.values;
    for (const Member& member : meeting->members) {
      for (std::size_t i = 0; i < agreed.size(); ++i)
        agreed[i] = std::max(agreed[i], member.op->values[i]);
    }
    for (const Member& member : meeting->members) member.op->values = agreed;
  }
  for (const Member& member : meeting->members)
    MachineOf(member.rank).Use(phases.cpu_seconds, [] {});
  const double began = simulation_.now();
  const auto finish = [this, meeting, rounds, began] { Finish(*meeting, *rounds, began); };
  const auto local = [this, meeting, finish, seconds = phases.local_seconds] {
    if (seconds <= 0) return finish();
    const auto left = std::make_shared<std::size_t>(meeting->members.size());
    for (const Member& member : meeting->members) {
      MachineOf(member.rank).Use(seconds, [left, finish] {
        if (--*left == 0) finish();
      });
    }
  };
  // Rounds within nodes and between them take turns.
  const auto between = [this, group, local,
                        seconds =
                            phases.link_seconds[static_cast<std::size_t>(LinkClass::kInterNode)]] {
    LinkOf(group, LinkClass::kInterNode).Use(seconds, local);
  };
  ExchangesUnderWay(1);
  starting_.Use(phases.latency_seconds,
                [this, group, between,
                 seconds = phases.link_seconds[static_cast<std::size_t>(LinkClass::kIntraNode)]] {
                  LinkOf(group, LinkClass::kIntraNode).Use(seconds, between);
                });
}

void ModelCluster::Finish(const Meeting& meeting, const RoundPlan& rounds, double began) {
  ExchangesUnderWay(-1);
  std::size_t entries = 0;
  for (const Contribution& given : meeting.given) entries += given.elements;
  if (rounds.sums) entries = *rounds.sums;
  for (std::size_t i = 0; i < meeting.given.size(); ++i) {
    const ExchangeResult result{entries, rounds.sums.has_value(), rounds.dense_sums,
                                rounds.served.empty() ? 0 : rounds.served[i]};
    const Traffic traffic = rounds.per_rank.empty() ? Traffic{} : rounds.per_rank[i];
    if (i < meeting.members.size()) {
      const Member& member = meeting.members[i];
      ranks_[static_cast<std::size_t>(member.rank)]->ExchangeDone(member.handle, began, traffic,
                                                                  meeting.given[i], result);
    } else {
      CountExchange(*meeting.members.front().op, traffic, meeting.given[i], result,
                    followers_[i - meeting.members.size()]);
    }
  }
}

}  // namespace sparfuse
