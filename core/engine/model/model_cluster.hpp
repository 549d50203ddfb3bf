// Joins modelled ranks: the machines and links that they share, and the exchanges under way.
//
// Ranks with machines of their own do the same at the same times: their selections differ, but an
// exchange ends for all of them at once. Only the first ranks are then simulated; each other rank
// follows one of them. A follower's payloads are computed too, and it takes the times of the rank
// it follows. If ranks exchange within nodes, whole nodes are simulated, and a follower has the
// same place on its node as the rank it follows. If ranks own parts, and not each an equal one, all
// owners are simulated, and followers own no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/model/simulation.hpp"
#include "core/engine/scheduler.hpp"

namespace sparfuse {

class ModelRank;

// A rank's contribution to an exchange.
struct Contribution {
  std::size_t elements = 0;         // elements to be sent
  std::size_t kept = 0;             // elements to be selected
  std::uint64_t payload_bytes = 0;  // of `elements`, selected before the exchange
  std::uint64_t chosen_bytes = 0;   // of `elements`, selected by the collective itself
  // Of each selection, if parts have owners.
  std::vector<std::uint64_t> part_bytes = {};
  std::vector<std::size_t> part_elements = {};
};

// The result of an exchange for a rank.
struct ExchangeResult {
  std::size_t entries = 0;  // elements that Apply reads
  bool summed = false;      // they are sums
  bool dense = false;       // of a range without indices
  std::uint64_t served = 0;
};

// Adds an exchange to the counts of `record`; a negotiation counts nothing.
void CountExchange(const Op& exchange, const Traffic& traffic, const Contribution& given,
                   const ExchangeResult& result, StepRecord& record);

class ModelCluster {
 public:
  // The first `simulated` ranks keep their own time, the others follow.
  ModelCluster(const ModelConfig& config, std::uint64_t first, int steps, int simulated,
               Recorded recorded);
  ~ModelCluster();
  // Returns nothing if ranks turn out not to do the same: needed() of them must then be simulated.
  std::optional<std::vector<ModelStep>> Run(int traced_ranks);
  int needed() const noexcept { return needed_; }

  const ModelConfig& config() const noexcept { return config_; }
  std::uint64_t first_step() const noexcept { return first_step_; }
  int steps() const noexcept { return steps_; }
  Simulation& simulation() noexcept { return simulation_; }
  SharedResource& MachineOf(int rank) {
    return *machines_[static_cast<std::size_t>(rank / config_.ranks_per_machine)];
  }
  // A rank has reached its next exchange on a channel; the exchange starts when all members have.
  void Arrive(int rank, Handle handle, Op& op);
  // A rank has ended forward and backward of its step; a rank begins its next step.
  void ComputeEnded();
  void ComputeBegins();
  // A rank has got the buffers that are broadcast before forward.
  void BuffersAreHere(int rank);
  // A rank has taken a background exchange in its step `index`.
  void Taken(int rank, Handle handle, int index);
  // A rank begins (1) or ends (-1) a selection within a hook: exchanges pause.
  void SelectingInHooks(int change);
  // A rank's strategy has asked for the size of that rank's selection.
  void PayloadAskedFor();

 private:
  struct Member {
    int rank = -1;
    Handle handle = 0;
    Op* op = nullptr;
  };
  using GroupKey = std::pair<Channel, int>;
  // An exchange under way.
  struct Meeting {
    GroupKey group;
    std::size_t ranks = 0;            // of the group
    std::vector<Member> members;      // the simulated members, by rank
    std::vector<Contribution> given;  // by all ranks of the group, or one if all give the same
    RoundPlan rounds;
    CostModel::Phases phases;
    double share = 1;
    double began = 0;
    std::size_t adding = 0;  // members

    const Contribution& GivenBy(std::size_t rank) const {
      return given[given.size() == 1 ? 0 : rank];
    }
  };

  ModelStep StepOf(int index);
  bool followed() const { return simulated_ < config_.topology.ranks; }
  bool enough() const { return needed_ <= simulated_; }
  // How many of the first ranks must be simulated so that the others can follow this exchange.
  int NeededFor(int rank, const Op& op) const;
  // The rank that `rank` follows; `rank` itself if it is simulated.
  int LeaderOf(int rank) const;
  // The rank of member `member` of a group.
  int RankOf(const GroupKey& group, int member) const;
  void Start(const GroupKey& group, std::vector<Member> members);
  // May reuse a finished meeting, with the memory of its members and contributions.
  Meeting& NewMeeting();
  void SetGiven(Meeting& meeting);
  // Sets the rounds if equal payloads alone determine them and nothing is counted; else false.
  bool SetEvenRounds(Meeting& meeting, const Topology& topology) const;
  void SetRounds(Meeting& meeting, const Topology& topology) const;
  struct GivenBytes {
    double most = 0, all = 0;  // of one rank; of all ranks
  };
  static GivenBytes BytesGiven(const Meeting& meeting);
  // The elements that the host moves. For payloads, the number of elements with their bytes.
  double StagedElements(const Meeting& meeting) const;
  CostModel::Phases PhasesOf(const Meeting& meeting) const;
  void OnLinkBetween(Meeting& meeting);
  void AddUp(Meeting& meeting);
  // The fraction of the exchange that goes on while ranks compute.
  double OverlapOf(const ModelRank& rank, const Op& exchange) const;
  void ExchangesUnderWay(int change);
  void Finish(Meeting& meeting);
  // Counts an exchange within the node of a simulated rank for its followers, who have had the
  // same.
  void CountForFollowers(int leader, const Op& exchange, const Traffic& traffic,
                         const Contribution& given, const ExchangeResult& result);
  StepRecord& FollowerOf(int rank, int index) {
    return followers_[static_cast<std::size_t>(index)][static_cast<std::size_t>(rank - simulated_)];
  }
  SharedResource& LinkOf(const GroupKey& group, LinkClass link);
  template <class... Arguments>
  void ForLinks(void (SharedResource::*change)(Arguments...), Arguments... arguments) {
    (starting_.*change)(arguments...);
    (inter_node_.*change)(arguments...);
    for (const auto& link : intra_node_) (link.get()->*change)(arguments...);
  }

  const ModelConfig& config_;
  std::uint64_t first_step_;
  int steps_;
  int simulated_;
  int needed_;
  Recorded recorded_;
  int compute_ended_ = 0;             // ranks
  int under_way_ = 0;                 // exchanges
  int selecting_ = 0;                 // ranks, within hooks
  std::vector<double> wire_seconds_;  // [steps] of the first rank
  Simulation simulation_;
  std::vector<std::unique_ptr<SharedResource>> machines_;
  SharedResource starting_;  // exchanges; no limit on how many
  SharedResource inter_node_;
  std::vector<std::unique_ptr<SharedResource>> intra_node_;
  std::vector<std::unique_ptr<ModelRank>> ranks_;
  std::vector<std::vector<StepRecord>> followers_;  // [steps][followers]
  struct FollowerCounts {
    int rank;
    Traffic traffic;
    Contribution given;
    ExchangeResult result;
  };
  std::map<Handle, std::vector<FollowerCounts>> untaken_;  // in the background, by rank 0's handle
  std::map<std::pair<GroupKey, std::size_t>, std::vector<Member>> meetings_;  // still lack members
  std::map<std::tuple<Channel, int>, std::size_t> next_meeting_;              // by channel and rank
  std::vector<std::unique_ptr<Meeting>> all_meetings_;
  std::vector<Meeting*> meetings_over_;
};

}  // namespace sparfuse
