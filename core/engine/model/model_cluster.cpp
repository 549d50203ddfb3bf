#include "core/engine/model/model_cluster.hpp"

#include <algorithm>
#include <string>

#include "core/engine/exchanged_tensors.hpp"
#include "core/engine/model/model_rank.hpp"

namespace sparfuse {

ModelCluster::ModelCluster(const ModelConfig& config, std::uint64_t step)
    : config_(config), step_(step), inter_node_(simulation_, 1.0) {
  const int machines =
      (config.topology.ranks + config.ranks_per_machine - 1) / config.ranks_per_machine;
  for (int m = 0; m < machines; ++m) {
    machines_.push_back(std::make_unique<SharedResource>(simulation_, config.cores_per_machine));
  }
  for (int node = 0; node < config.topology.nodes(); ++node) {
    intra_node_.push_back(std::make_unique<SharedResource>(simulation_, 1.0));
  }
}

ModelCluster::~ModelCluster() = default;

ModelStep ModelCluster::Run(int traced_ranks) {
  for (int rank = 0; rank < config_.topology.ranks; ++rank) {
    ranks_.push_back(std::make_unique<ModelRank>(*this, rank, rank < traced_ranks));
  }
  for (auto& rank : ranks_) rank->Begin();
  simulation_.Run();
  ModelStep result;
  for (auto& rank : ranks_) {
    if (!rank->ended())
      SPARFUSE_THROW(kInternal, "modelled step does not end: " + rank->Unfinished());
    result.records.push_back(rank->record());
    result.spans.push_back(rank->TakeSpans());
  }
  return result;
}

void ModelCluster::Arrive(int rank, Handle handle, Op& op, Contribution given) {
  const Topology& topology = config_.topology;
  GroupKey group{op.channel, 0};
  std::size_t size = static_cast<std::size_t>(topology.ranks);
  if (op.channel == Channel::kIntraNode) {
    group.second = topology.NodeOf(rank);
    size = static_cast<std::size_t>(
        std::min(topology.ranks_per_node, topology.ranks - group.second * topology.ranks_per_node));
  } else if (op.channel == Channel::kInterNode) {
    group.second = topology.LocalRankOf(rank);
    size = static_cast<std::size_t>((topology.ranks - group.second + topology.ranks_per_node - 1) /
                                    topology.ranks_per_node);
  }
  const std::size_t index = next_meeting_[{op.channel, rank}]++;
  const auto key = std::pair(group, index);
  Meeting& meeting = meetings_[key];
  meeting.members.push_back({rank, handle, &op, given});
  if (++meeting.arrived < size) return;
  Meeting complete = std::move(meeting);
  meetings_.erase(key);
  std::sort(complete.members.begin(), complete.members.end(),
            [](const Member& a, const Member& b) { return a.rank < b.rank; });
  Start(group, std::move(complete));
}

RoundPlan ModelCluster::RoundsOf(const Meeting& meeting, const Topology& topology) const {
  const Op& first = *meeting.members.front().op;
  if (first.kind == OpKind::kNegotiate) return AllReduceMaxRounds(first.values.size(), topology);
  ExchangeSizes sizes;
  sizes.shape = {first.range.size(), meeting.members.front().given.kept, step_, {}};
  for (const Member& member : meeting.members) {
    sizes.payload_bytes.push_back(member.op->payload_bytes);
  }
  const Collective& collective =
      first.selections.empty() ? *config_.dense_collective : *config_.sparse_collective;
  std::vector<ExchangedTensor> tensors;
  if (!first.selections.empty() && collective.traits().by_tensor) {
    tensors = TensorsOfExchange(config_.layout, first.range);
  }
  sizes.shape.tensors = tensors;
  collective.Expect(config_.overlap, topology, sizes);
  return ModelledRounds(collective, sizes, topology);
}

SharedResource& ModelCluster::LinkOf(const GroupKey& group, LinkClass link) {
  if (link == LinkClass::kInterNode) return inter_node_;
  const std::size_t node =
      group.first == Channel::kIntraNode ? static_cast<std::size_t>(group.second) : 0;
  return *intra_node_[node];
}

// Start-up time, then the link, then what each rank adds on a core of its own.
void ModelCluster::Start(const GroupKey& group, Meeting started) {
  Topology topology = config_.topology;
  if (group.first == Channel::kIntraNode) {
    topology = {static_cast<int>(started.members.size()), static_cast<int>(started.members.size())};
  } else if (group.first == Channel::kInterNode) {
    topology = {static_cast<int>(started.members.size()), 1};
  }
  const auto meeting = std::make_shared<Meeting>(std::move(started));
  const auto rounds = std::make_shared<RoundPlan>(RoundsOf(*meeting, topology));
  const Op& first = *meeting->members.front().op;
  CostModel::Phases phases = config_.cost.PhasesOf(*rounds);
  const bool native = first.kind == OpKind::kExchange && first.selections.empty() &&
                      config_.dense_collective->descriptor().native;
  if (native && !config_.cost.native_all_reduce_seconds.empty()) {
    phases.latency_seconds =
        config_.cost.exchange_dispatch_seconds +
        config_.cost.native_all_reduce_seconds(static_cast<double>(first.payload_bytes));
    phases.link_seconds = {};
    phases.local_seconds = 0;
  }
  phases.latency_seconds +=
      config_.cost.exchange_seconds_per_element * static_cast<double>(first.elements());
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
  const auto finish = [this, meeting, rounds, began] {
    std::size_t entries = 0;
    for (const Member& member : meeting->members) entries += member.given.elements;
    if (rounds->sums) entries = *rounds->sums;
    for (std::size_t i = 0; i < meeting->members.size(); ++i) {
      const Member& member = meeting->members[i];
      ModelRank& rank = *ranks_[static_cast<std::size_t>(member.rank)];
      const std::uint64_t served = rounds->served.empty() ? 0 : rounds->served[i];
      rank.ExchangeDone(
          member.handle, began, rounds->per_rank.empty() ? Traffic{} : rounds->per_rank[i],
          member.given.elements, {entries, rounds->sums.has_value(), rounds->dense_sums, served});
    }
  };
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
  simulation_.After(
      phases.latency_seconds,
      [this, group, between,
       seconds = phases.link_seconds[static_cast<std::size_t>(LinkClass::kIntraNode)]] {
        LinkOf(group, LinkClass::kIntraNode).Use(seconds, between);
      });
}

}  // namespace sparfuse
