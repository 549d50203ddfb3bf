// Joins modelled ranks: the clock and resources of a simulation of discrete events, the machines
// and links that ranks share, and the exchanges under way.
//
// Ranks with machines of their own do the same at the same times: what they select differs, but an
// exchange is over for all of them at once. Then only the first ranks are simulated; the others
// follow them: what they send is computed along, their times are those of the rank that they
// follow. Where ranks exchange within nodes, whole nodes are simulated, and where ranks own parts
// and not each of them an equal one, all those that own one: who follows has the same place on a
// node, and owns nothing either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/scheduler.hpp"

namespace sparfuse {

class Simulation {
 public:
  using Callback = std::function<void()>;

  double now() const noexcept { return now_; }
  // Events at equal times run in the order in which they were scheduled.
  void At(double time, Callback callback);
  void After(double seconds, Callback callback) { At(now_ + seconds, std::move(callback)); }
  // Until nothing is scheduled.
  void Run();

 private:
  struct Event {
    double time;
    std::uint64_t order;
    std::uint32_t slot;                         // of callbacks_
    bool operator<(const Event& other) const {  // std::priority_queue keeps the largest on top
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  std::vector<Callback> callbacks_;  // by slot: they stay where they are while the queue is sorted
  std::vector<std::uint32_t> free_;  // slots
  double now_ = 0;
  std::uint64_t order_ = 0;
};

// `capacity` units that work at rate 1 each, shared evenly: with n > capacity activities each
// advances at capacity / n. Times are kept in virtual seconds, which advance at the common rate, so
// that an arrival or a departure costs O(log n).
class SharedResource {
 public:
  // capacity > 0, or infinite when <= 0.
  SharedResource(Simulation& simulation, double capacity)
      : simulation_(simulation), capacity_(capacity) {}

  // Calls `done` when `work` seconds of one unit have been given to this activity. Until Release it
  // gets no more than `share` of what would be its own, 0 to 1; with 0 it waits, and takes nothing
  // from others.
  void Use(double work, Simulation::Callback done, double share = 1);
  // From now on every unit works at this rate, at least 0; 1 to begin with.
  void SetSpeed(double speed);
  // From now on all activities get all that is their own; and their shares again.
  void Release();
  void Hold();

 private:
  struct Activity {
    double virtual_end;
    std::uint64_t order;
    double share;
    Simulation::Callback done;
    bool operator<(const Activity& other) const {
      return virtual_end != other.virtual_end ? virtual_end > other.virtual_end
                                              : order > other.order;
    }
  };
  double Rate() const;
  void Advance();
  void ScheduleNext();
  void FinishDue(std::uint64_t generation);

  Simulation& simulation_;
  double capacity_;
  double speed_ = 1;
  std::priority_queue<Activity> activities_;
  std::vector<std::pair<double, Simulation::Callback>> held_;  // work of activities without a share
  bool released_ = false;
  double virtual_now_ = 0;
  double updated_ = 0;  // simulation time of virtual_now_
  std::uint64_t order_ = 0;
  std::uint64_t generation_ = 0;  // outdates scheduled completions
};

class ModelRank;

// What a rank gives to an exchange.
struct Contribution {
  std::size_t elements = 0;         // that it sends
  std::size_t kept = 0;             // that it is to select
  std::uint64_t payload_bytes = 0;  // of `elements`, chosen before the exchange
  std::uint64_t chosen_bytes = 0;   // of `elements`, chosen by the collective itself
  // Of each selection, where parts have owners.
  std::vector<std::uint64_t> part_bytes = {};
  std::vector<std::size_t> part_elements = {};
};

// What an exchange came to for a rank.
struct ExchangeResult {
  std::size_t entries = 0;  // elements that Apply reads
  bool summed = false;      // they are sums
  bool dense = false;       // of a range without indices
  std::uint64_t served = 0;
};

// Into the counts of `record`; a negotiation counts nothing.
void CountExchange(const Op& exchange, const Traffic& traffic, const Contribution& given,
                   const ExchangeResult& result, StepRecord& record);

class ModelCluster {
 public:
  // The first `simulated` ranks keep their own time, the others follow.
  ModelCluster(const ModelConfig& config, std::uint64_t first, int steps, int simulated,
               Recorded recorded);
  ~ModelCluster();
  // Nothing where ranks turn out not to do the same: then needed() of them must be simulated.
  std::optional<std::vector<ModelStep>> Run(int traced_ranks);
  int needed() const noexcept { return needed_; }

  const ModelConfig& config() const noexcept { return config_; }
  std::uint64_t first_step() const noexcept { return first_step_; }
  int steps() const noexcept { return steps_; }
  Simulation& simulation() noexcept { return simulation_; }
  SharedResource& MachineOf(int rank) {
    return *machines_[static_cast<std::size_t>(rank / config_.ranks_per_machine)];
  }
  // A rank has reached its next exchange on a channel; it starts when all members have.
  void Arrive(int rank, Handle handle, Op& op);
  // A rank has no forward or backward left in its step; it begins another one.
  void ComputeEnded();
  void ComputeBegins();
  // A rank has taken an exchange of the background in its step `index`.
  void Taken(int rank, Handle handle, int index);
  // A rank begins (1) or ends (-1) a selection within a hook: exchanges pause.
  void SelectingInHooks(int change);
  // A rank's strategy looks at how much that rank has selected.
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
    std::vector<Member> members;      // those that are simulated, by rank
    std::vector<Contribution> given;  // by all ranks of the group, or one that all give alike
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
  // How many of the first ranks must be simulated for the others to follow through this exchange.
  int NeededFor(int rank, const Op& op) const;
  // The rank that a rank follows; a simulated one itself.
  int LeaderOf(int rank) const;
  // Member `member` of a group, as a rank.
  int RankOf(const GroupKey& group, int member) const;
  void Start(const GroupKey& group, std::vector<Member> members);
  // One that is over may be used again; its members and contributions have room.
  Meeting& NewMeeting();
  void SetGiven(Meeting& meeting);
  // Rounds that are known for equal payloads alone, where nothing is counted.
  bool SetEvenRounds(Meeting& meeting, const Topology& topology) const;
  void SetRounds(Meeting& meeting, const Topology& topology) const;
  // That the host moves, or as many bytes of payloads.
  double StagedElements(const Meeting& meeting) const;
  CostModel::Phases PhasesOf(const Meeting& meeting) const;
  void OnLinkBetween(Meeting& meeting);
  void AddUp(Meeting& meeting);
  // What of it goes on while ranks compute.
  double OverlapOf(const ModelRank& rank, const Op& exchange) const;
  void ExchangesUnderWay(int change);
  void Finish(Meeting& meeting);
  // Of a simulated rank's exchange within its node: those who follow it have had the same.
  void CountForFollowers(int leader, const Op& exchange, const Traffic& traffic,
                         const Contribution& given, const ExchangeResult& result);
  StepRecord& FollowerOf(int rank, int index) {
    return followers_[static_cast<std::size_t>(index)][static_cast<std::size_t>(rank - simulated_)];
  }
  SharedResource& LinkOf(const GroupKey& group, LinkClass link);

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
  std::vector<std::vector<StepRecord>> followers_;  // [steps] what they count
  struct FollowerCounts {
    int rank;
    Traffic traffic;
    Contribution given;
    ExchangeResult result;
  };
  std::map<Handle, std::vector<FollowerCounts>> untaken_;  // in the background, by rank 0's handle
  std::map<std::pair<GroupKey, std::size_t>, std::vector<Member>> meetings_;  // that lack members
  std::map<std::tuple<Channel, int>, std::size_t> next_meeting_;              // by channel and rank
  std::vector<std::unique_ptr<Meeting>> all_meetings_;
  std::vector<Meeting*> meetings_over_;
};

}  // namespace sparfuse
