#include "core/engine/model/model_engine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <numbers>
#include <tuple>

#include "core/engine/model/simulation.hpp"
#include "core/engine/scheduler.hpp"

namespace sparfuse {
namespace {

// SplitMix64 over a key: the same draw wherever and in whatever order it is asked for.
double UniformOf(std::initializer_list<std::uint64_t> key) {
  std::uint64_t state = 0x9e3779b97f4a7c15ull;
  for (const std::uint64_t part : key) {
    state = (state ^ part) + 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    state ^= state >> 31;
  }
  return (static_cast<double>(state >> 11) + 0.5) / 9007199254740992.0;
}

// 0 for the residual that most selections have; FNV-1a for others.
std::uint64_t KeyOf(std::string_view residual) {
  if (residual == SparsifyRequest().residual) return 0;
  std::uint64_t key = 0xcbf29ce484222325ull;
  for (const char c : residual) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return key;
}

class ModelRank;

// Everything that ranks share: the clock, machines, links, and the exchanges under way.
class Cluster {
 public:
  Cluster(const ModelConfig& config, std::uint64_t step);
  ModelStep Run(int traced_ranks);

  const ModelConfig& config() const noexcept { return config_; }
  std::uint64_t step() const noexcept { return step_; }
  Simulation& simulation() noexcept { return simulation_; }
  SharedResource& MachineOf(int rank) {
    return *machines_[static_cast<std::size_t>(rank / config_.ranks_per_machine)];
  }
  // A rank has reached its next exchange on a channel; it starts when all members have.
  void Arrive(int rank, Handle handle, Op& op, std::size_t elements);

 private:
  struct Member {
    int rank = -1;
    Handle handle = 0;
    Op* op = nullptr;
    std::size_t elements = 0;  // that it contributes
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

class ModelRank final : public StepScheduler {
 public:
  ModelRank(Cluster& cluster, int rank, bool traced)
      : StepScheduler(cluster.config().layout, cluster.config().plan, cluster.config().topology,
                      rank),
        cluster_(cluster),
        strategy_(cluster.config().make_strategy()),
        traced_(traced) {}

  void Begin() {
    ResetStep();
    strategy_->StepBegin(*this);
    RunProgram();
  }

  // The exchange that this rank waits for is over; `traffic` is its share, `entries` those of all
  // ranks together.
  void ExchangeDone(Handle handle, double began, const Traffic& traffic, std::size_t elements,
                    std::size_t entries) {
    const Op& done = op(handle);
    const bool negotiate = done.kind == OpKind::kNegotiate;
    Trace(negotiate ? SpanKind::kNegotiate : SpanKind::kExchange,
          std::string(ChannelName(done.channel)), done.label, began, done.payload_bytes);
    if (!negotiate) {
      ++record_.exchanges;
      record_.payload_bytes += done.payload_bytes;
      record_.selected += elements;
      record_.sent_bytes += traffic.bytes_sent;
      record_.received_bytes += traffic.bytes_received;
      record_.messages_sent += traffic.messages_sent;
      entries_[handle] = entries;
    }
    Finish(handle);
    WakeCompute();
  }

  void BeginWait(std::string label) override { waits_[std::move(label)] = Now(); }
  void EndWait(const std::string& label) override {
    const auto it = waits_.find(label);
    record_.align_wait_seconds += Now() - it->second;
    Trace(SpanKind::kAlign, "align", label, it->second, 0);
    waits_.erase(it);
  }

  bool ended() const noexcept { return phase_ == Phase::kEnded; }
  std::string Unfinished() const { return DescribeUnfinished(); }
  const StepRecord& record() const noexcept { return record_; }
  std::vector<Span> TakeSpans() { return std::move(spans_); }

 private:
  enum class Phase { kBegin, kForward, kBackward, kTail, kFinishing, kUpdate, kEnded };
  struct LaneState {
    std::deque<Handle> queue;
    bool busy = false;
  };

  double Now() const { return cluster_.simulation().now(); }
  void Trace(SpanKind kind, std::string lane, std::string label, double begin,
             std::uint64_t bytes) {
    if (traced_) spans_.push_back({kind, std::move(lane), std::move(label), begin, Now(), bytes});
  }

  void StartLocal(Handle handle, Op& started) override {
    lanes_[static_cast<std::size_t>(started.lane)].queue.push_back(handle);
    if (started.lane == Lane::kCompute) {
      WakeCompute();
    } else {
      WakeLane(started.lane);
    }
  }
  void StartExchange(Handle handle, Op& started) override {
    std::size_t elements = started.elements();
    if (!started.selections.empty()) {
      std::uint64_t whole_bytes = 0;
      std::size_t whole_elements = 0;
      for (const Handle selection : started.selections) {
        if (!IsWhole(op(selection))) continue;
        whole_bytes += op(selection).payload_bytes;
        whole_elements += op(selection).range.size();
      }
      const std::size_t selected = (started.payload_bytes - whole_bytes) / kSparseElementBytes;
      const PayloadCoding coding = cluster_.config().coding;
      if (coding != PayloadCoding{} && whole_elements < elements) {
        started.payload_bytes =
            whole_bytes + ExpectedPayloadBytes(coding, selected, started.range.size());
      }
      elements = whole_elements + selected;
    }
    cluster_.Arrive(rank(), handle, started, elements);
  }
  void StartTimerOp(Handle handle, Op& timer) override {
    cluster_.simulation().After(timer.seconds, [this, handle] {
      if (phase_ == Phase::kEnded) return;
      Finish(handle);
      WakeCompute();
    });
  }
  void StepComplete() override { complete_ = true; }

  // Between the pieces of backward the compute lane does what is queued, as the live hook does;
  // after backward it also waits.
  void WakeCompute() {
    LaneState& lane = lanes_[0];
    if (lane.busy || phase_ == Phase::kEnded || in_program_) return;
    if (!lane.queue.empty()) {
      if (phase_ == Phase::kFinishing && Now() > idle_since_) {
        record_.exposed_communication_seconds += Now() - idle_since_;
        Trace(SpanKind::kExposed, "compute", "", idle_since_, 0);
      }
      Work(Lane::kCompute);
    } else if (phase_ != Phase::kFinishing || complete_) {
      RunProgram();
    }
  }

  void WakeLane(Lane which) {
    LaneState& lane = lanes_[static_cast<std::size_t>(which)];
    if (!lane.busy && !lane.queue.empty()) Work(which);
  }

  void Work(Lane which) {
    LaneState& lane = lanes_[static_cast<std::size_t>(which)];
    const Handle handle = lane.queue.front();
    lane.queue.pop_front();
    lane.busy = true;
    const double began = Now();
    cluster_.MachineOf(rank()).Use(LocalSeconds(handle), [this, which, handle, began] {
      lanes_[static_cast<std::size_t>(which)].busy = false;
      EndWork(which, handle, began);
      which == Lane::kCompute ? WakeCompute() : WakeLane(which);
      WakeCompute();
    });
  }

  double LocalSeconds(Handle handle) {
    Op& started = op(handle);
    const CostModel& cost = cluster_.config().cost;
    const auto n = static_cast<double>(started.kind == OpKind::kApply ? started.elements()
                                                                      : started.range.size());
    switch (started.kind) {
      case OpKind::kPack:
        return cost.dispatch_seconds + cost.pack_seconds(n);
      case OpKind::kSparsify:
        return cost.dispatch_seconds + SelectionSeconds(started);
      default:
        return cost.dispatch_seconds +
               (op(started.exchange).selections.empty()
                    ? cost.scale_seconds(n)
                    : cost.DecompressSeconds(started.elements(), entries_[started.exchange]));
    }
  }

  double SelectionSeconds(Op& sparsify) const {
    const ModelConfig& config = cluster_.config();
    const std::size_t n = sparsify.range.size();
    if (IsWhole(sparsify)) {
      sparsify.payload_bytes = config.dense_quantizer->EncodedBytes(n);
      return config.cost.EncodeSeconds(config.dense_quantizer->name(), n);
    }
    if (sparsify.density >= 1) {  // nothing to select: a checked copy
      sparsify.payload_bytes = n * kSparseElementBytes;
      return config.cost.pack_seconds(static_cast<double>(n));
    }
    sparsify.payload_bytes = SelectedCount(sparsify) * kSparseElementBytes;
    return sparsify.lane == Lane::kHost
               ? config.cost.HostSelectionSeconds(config.sparsifier, n, sparsify.density)
               : config.cost.SelectionSeconds(config.sparsifier, n, sparsify.density);
  }

  bool IsWhole(const Op& sparsify) const {
    return cluster_.config().dense_quantizer != nullptr && sparsify.density >= 1;
  }

  std::size_t SelectedCount(const Op& sparsify) const {
    const std::size_t n = sparsify.range.size();
    const std::size_t k = ExpectedCount(sparsify);
    const SelectionModel& model = cluster_.config().selection;
    if (model.sigma == 0 && model.mean == 0) return k;
    const std::uint64_t who =
        cluster_.config().index_shared ? 0 : static_cast<std::uint64_t>(rank()) + 1;
    const auto uniform = [&](std::uint64_t draw) {
      return UniformOf({cluster_.config().seed, cluster_.step(), who, sparsify.range.begin,
                        KeyOf(sparsify.residual) + draw});
    };
    const double u = uniform(0);
    const double v = uniform(1);
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    const double count = static_cast<double>(k) * std::exp(model.mean + model.sigma * normal);
    const std::size_t room = SlotCapacity(n, sparsify.density, cluster_.config().unbounded_count);
    return std::clamp<std::size_t>(static_cast<std::size_t>(std::lround(count)), 1,
                                   std::max(room, k));
  }

  std::size_t ExpectedCount(const Op& sparsify) const {
    const std::size_t n = sparsify.range.size();
    if (cluster_.config().selector == nullptr) return KeptCount(n, sparsify.density);
    const TensorEntry& tensor = layout().tensor(layout().PositionOf(sparsify.range.begin));
    std::span<const std::int64_t> shape;
    if (sparsify.range == tensor.range()) shape = tensor.shape;
    return cluster_.config().selector->Count(n, shape, sparsify.density);
  }

  void EndWork(Lane lane, Handle handle, double began) {
    const Op& done = op(handle);
    SpanKind kind = SpanKind::kDecompress;
    std::string label;
    if (done.kind == OpKind::kPack) {
      kind = SpanKind::kPack;
      label = layout().tensor(done.tensor).name;
    } else if (done.kind == OpKind::kSparsify) {
      kind = SpanKind::kSparsify;
    }
    if (lane == Lane::kCompute) {
      (kind == SpanKind::kDecompress ? record_.decompress_seconds : record_.sparsify_seconds) +=
          Now() - began;
      idle_since_ = Now();
    }
    Trace(kind, std::string(LaneName(lane)), std::move(label), began, done.payload_bytes);
    Finish(handle);
  }

  // One piece of forward, backward or update on the compute lane, then `next`.
  void Compute(double seconds, SpanKind kind, double* total, std::string label, Continuation next) {
    lanes_[0].busy = true;
    const double began = Now();
    cluster_.MachineOf(rank()).Use(
        seconds, [this, kind, total, began, label = std::move(label), next = std::move(next)] {
          lanes_[0].busy = false;
          if (total != nullptr) {
            *total += Now() - began;
            Trace(kind, "compute", label, began, 0);
          }
          in_program_ = true;
          next();
          in_program_ = false;
          idle_since_ = Now();
          WakeCompute();
        });
  }

  void RunProgram() {
    const BackwardProfile& profile = cluster_.config().backward;
    switch (phase_) {
      case Phase::kBegin:
        return Compute(profile.begin_seconds, SpanKind::kForward, nullptr, "",
                       [this] { phase_ = Phase::kForward; });
      case Phase::kForward:
        return Compute(profile.forward_seconds, SpanKind::kForward, &record_.forward_seconds, "",
                       [this] { phase_ = Phase::kBackward; });
      case Phase::kBackward: {
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
                         strategy_->BackwardEnd(*this);
                       });
      case Phase::kFinishing:
        if (Now() > idle_since_) {
          record_.exposed_communication_seconds += Now() - idle_since_;
          Trace(SpanKind::kExposed, "compute", "", idle_since_, 0);
        }
        phase_ = Phase::kUpdate;
        return Compute(profile.update_seconds, SpanKind::kUpdate, &record_.update_seconds, "",
                       [this] {
                         record_.step_seconds = Now();
                         phase_ = Phase::kEnded;
                       });
      case Phase::kUpdate:
      case Phase::kEnded:
        return;
    }
  }

  Cluster& cluster_;
  std::unique_ptr<Strategy> strategy_;
  bool traced_;
  Phase phase_ = Phase::kBegin;
  bool in_program_ = false;  // inside a reaction: lanes are woken when it returns
  bool complete_ = false;
  std::size_t next_tensor_ = 0;
  double idle_since_ = 0;
  std::array<LaneState, kLanes> lanes_;
  std::map<Handle, std::size_t> entries_;
  std::map<std::string, double> waits_;
  StepRecord record_;
  std::vector<Span> spans_;
};

Cluster::Cluster(const ModelConfig& config, std::uint64_t step)
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

ModelStep Cluster::Run(int traced_ranks) {
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

void Cluster::Arrive(int rank, Handle handle, Op& op, std::size_t elements) {
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
  meeting.members.push_back({rank, handle, &op, elements});
  if (++meeting.arrived < size) return;
  Meeting complete = std::move(meeting);
  meetings_.erase(key);
  std::sort(complete.members.begin(), complete.members.end(),
            [](const Member& a, const Member& b) { return a.rank < b.rank; });
  Start(group, std::move(complete));
}

RoundPlan Cluster::RoundsOf(const Meeting& meeting, const Topology& topology) const {
  const Op& first = *meeting.members.front().op;
  if (first.kind == OpKind::kNegotiate) return AllReduceMaxRounds(first.values.size(), topology);
  std::vector<std::uint64_t> sizes;
  for (const Member& member : meeting.members) sizes.push_back(member.op->payload_bytes);
  const Collective& collective =
      first.selections.empty() ? *config_.dense_collective : *config_.sparse_collective;
  return collective.rounds(sizes, topology);
}

SharedResource& Cluster::LinkOf(const GroupKey& group, LinkClass link) {
  if (link == LinkClass::kInterNode) return inter_node_;
  const std::size_t node =
      group.first == Channel::kIntraNode ? static_cast<std::size_t>(group.second) : 0;
  return *intra_node_[node];
}

// Start-up time, then the link, then what each rank adds on a core of its own.
void Cluster::Start(const GroupKey& group, Meeting started) {
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
                      config_.dense_collective->native;
  if (native && !config_.cost.native_all_reduce_seconds.empty()) {
    phases.latency_seconds =
        config_.cost.exchange_dispatch_seconds +
        config_.cost.native_all_reduce_seconds(static_cast<double>(first.payload_bytes));
    phases.link_seconds = phases.local_seconds = 0;
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
    for (const Member& member : meeting->members) entries += member.elements;
    for (std::size_t i = 0; i < meeting->members.size(); ++i) {
      const Member& member = meeting->members[i];
      ModelRank& rank = *ranks_[static_cast<std::size_t>(member.rank)];
      rank.ExchangeDone(member.handle, began,
                        rounds->per_rank.empty() ? Traffic{} : rounds->per_rank[i], member.elements,
                        entries);
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
  const LinkClass link =
      rounds->rounds.empty() ? LinkClass::kInterNode : rounds->rounds.front().link;
  simulation_.After(phases.latency_seconds,
                    [this, group, link, local, seconds = phases.link_seconds] {
                      LinkOf(group, link).Use(seconds, local);
                    });
}

}  // namespace

ModelStep SimulateStep(const ModelConfig& config, std::uint64_t step, int traced_ranks) {
  return Cluster(config, step).Run(traced_ranks);
}

}  // namespace sparfuse
