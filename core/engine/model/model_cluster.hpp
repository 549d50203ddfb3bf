// Joins modelled ranks: the clock, machines and links that they share, and the exchanges under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/model/simulation.hpp"
#include "core/engine/scheduler.hpp"

namespace sparfuse {

class ModelRank;

class ModelCluster {
 public:
  ModelCluster(const ModelConfig& config, std::uint64_t step);
  ~ModelCluster();
  ModelStep Run(int traced_ranks);

  const ModelConfig& config() const noexcept { return config_; }
  std::uint64_t step() const noexcept { return step_; }
  Simulation& simulation() noexcept { return simulation_; }
  SharedResource& MachineOf(int rank) {
    return *machines_[static_cast<std::size_t>(rank / config_.ranks_per_machine)];
  }
  struct Contribution {
    std::size_t elements = 0;  // that a rank sends
    std::size_t kept = 0;      // that it is to select
  };
  // A rank has reached its next exchange on a channel; it starts when all members have.
  void Arrive(int rank, Handle handle, Op& op, Contribution given);

 private:
  struct Member {
    int rank = -1;
    Handle handle = 0;
    Op* op = nullptr;
    Contribution given;
  };
  struct Meeting {
    std::vector<Member> members;
    std::size_t arrived = 0;
  };
  using GroupKey = std::pair<Channel, int>;

  void Start(const GroupKey& group, Meeting meeting);
  RoundPlan RoundsOf(const Meeting& meeting, const Topology& topology) const;
  SharedResource& LinkOf(const GroupKey& group, LinkClass link);

  const ModelConfig& config_;
  std::uint64_t step_;
  Simulation simulation_;
  std::vector<std::unique_ptr<SharedResource>> machines_;
  SharedResource inter_node_;
  std::vector<std::unique_ptr<SharedResource>> intra_node_;
  std::vector<std::unique_ptr<ModelRank>> ranks_;
  std::map<std::pair<GroupKey, std::size_t>, Meeting> meetings_;
  std::map<std::tuple<Channel, int>, std::size_t> next_meeting_;  // by channel and rank
};

}  // namespace sparfuse
