#include "harness/worker/rank/quiet_monitor.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/device/card.hpp"
#include "core/transport/sleep.hpp"
#include "core/transport/task.hpp"
#include "core/transport/topology.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/machine/system.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kLoops = 8;

constexpr int kMeterTag = 17;
constexpr int kMeterRounds = 3;
constexpr double kTransferSeconds = 0.04;
constexpr double kLeastTransferSeconds = 0.005;  // waking up late by 0.25 ms would be 5 % of it
constexpr double kMeterSeconds = 0.14;
constexpr double kMostBytes = 64 << 20;  // of all ranks' messages

// The ranks that send to this one and that it sends to; none where it takes no part.
struct Neighbours {
  int from = -1, to = -1;
  bool any() const { return to >= 0; }
};

Neighbours NeighboursOf(const Topology& topology, int rank) {
  const int ranks = topology.ranks;
  if (topology.nodes() == 1) return {(rank + ranks - 1) % ranks, (rank + 1) % ranks};
  if (topology.LocalRankOf(rank) != 0) return {};
  const int nodes = topology.nodes(), node = topology.NodeOf(rank);
  const auto first_of = [&](int each) { return each % nodes * topology.ranks_per_node; };
  return {first_of(node + nodes - 1), first_of(node + 1)};
}

// The message carries the time at which it was sent: ranks of an emulated link share a host's
// clock, and begin a round at different times.
Task PassOn(Communicator& world, Neighbours neighbours, std::span<std::byte> out,
            std::span<std::byte> in, std::int64_t& nanoseconds) {
  auto receive = world.Irecv(neighbours.from, kMeterTag, in);
  std::int64_t begun = MonotonicNanoseconds();
  std::memcpy(out.data(), &begun, sizeof begun);
  auto send = world.Isend(neighbours.to, kMeterTag, out);
  co_await Complete(std::move(receive));
  const std::int64_t ended = MonotonicNanoseconds();
  std::memcpy(&begun, in.data(), sizeof begun);
  nanoseconds = ended - begun;
  co_await Complete(std::move(send));
}

BeforeAndAfter Both(const std::optional<double>& before, const std::optional<double>& after) {
  if (!before && !after) return std::nullopt;
  return std::vector{before, after};
}

}  // namespace

std::optional<double> LinkMeter::Gbps() const {
  const Topology topology{rank_.size(), rank_.config.ranks_per_node};
  const LinkShape& link = *rank_.config.link;
  const double alpha_seconds = 1e-6 * (topology.nodes() > 1 ? link.alpha_us : link.intra_node_us);
  const double bytes_per_second = 1e9 / 8 * LabelGbps();
  const int senders = topology.nodes() > 1 ? topology.nodes() : topology.ranks;
  const double bytes = std::min(bytes_per_second * kTransferSeconds, kMostBytes / senders);
  const double transfer_seconds = bytes / bytes_per_second;
  const int rounds =
      std::min(kMeterRounds, static_cast<int>(kMeterSeconds / (alpha_seconds + transfer_seconds)));
  if (rounds < 1 || transfer_seconds < kLeastTransferSeconds) return std::nullopt;

  const Neighbours neighbours = NeighboursOf(topology, rank_.rank());
  const std::size_t size = std::max(sizeof(std::int64_t), static_cast<std::size_t>(bytes));
  std::vector<std::byte> out(neighbours.any() ? size : 0), in(out.size());
  std::int64_t least = 0;
  for (int round = 0; round < rounds; ++round) {
    std::int64_t nanoseconds = 0;
    rank_.Synchronise();
    if (neighbours.any()) {
      rank_.loop.RunBlocking(
          [&](Communicator& world) { return PassOn(world, neighbours, out, in, nanoseconds); });
    }
    const std::int64_t slowest = rank_.Max({nanoseconds})[0];
    least = round == 0 ? slowest : std::min(least, slowest);
  }
  const double on_the_way = 1e-9 * static_cast<double>(least) - alpha_seconds;
  if (on_the_way <= 0) return std::nullopt;
  return 8e-9 * static_cast<double>(size) / on_the_way;
}

QuietMonitor::QuietMonitor(const Rank& rank, int measured_steps)
    : rank_(rank), steps_between_loops_(std::max(1, (measured_steps + kLoops - 1) / kLoops)) {
  sums_.intervals = 0;
}

void QuietMonitor::MeasureLink() {
  const LinkMeter meter(rank_);
  if (!meter.HasLink()) return;
  link_ = {meter.LabelGbps(), meter.Gbps(), std::nullopt};
}

void QuietMonitor::Begin() {
  if (sums_.loop_seconds.empty()) {
    load_before_ = LoadAverage();
    clock_before_ = ClockMhz();
  }
  RunLoop();
  rank_.Synchronise();
  begin_ = ReadCpuUse();
  begun_ = std::chrono::steady_clock::now();
}

// Ranks run the loop at once. Two ranks that share a physical core thus share it in every reading.
void QuietMonitor::RunLoop() {
  rank_.Synchronise();
  sums_.loop_seconds.push_back(ReferenceLoopSeconds());
  steps_since_loop_ = 0;
}

void QuietMonitor::StepIsDone(bool under_way) {
  if (++steps_since_loop_ >= steps_between_loops_ && !under_way) RunLoop();
}

void QuietMonitor::End() {
  if (!begin_) return;
  rank_.Synchronise();
  const CpuUse end = ReadCpuUse();
  const auto cores = Between(begin_->times, end.times);
  const bool fell = begin_->times && end.times && !cores;
  if (rank_.Max({std::int64_t{fell}})[0] != 0) {  // for all ranks, because their times are added
    begin_.reset();
    return;
  }
  sums_.seconds += SecondsSince(begun_);
  sums_.own_seconds += end.own_cpu_seconds - begin_->own_cpu_seconds;
  sums_.ancestors_seconds += end.ancestors_cpu_seconds - begin_->ancestors_cpu_seconds;
  sums_.involuntary_switches +=
      static_cast<double>(end.involuntary_switches - begin_->involuntary_switches);
  if (end.pressure_seconds && begin_->pressure_seconds) {
    sums_.pressure_seconds =
        sums_.pressure_seconds.value_or(0) + *end.pressure_seconds - *begin_->pressure_seconds;
  }
  sums_.cores = cores ? cores->cores : 0;
  if (cores) {
    sums_.idle_seconds += cores->idle_seconds;
    sums_.interrupt_seconds += cores->interrupt_seconds;
    sums_.stolen_seconds += cores->stolen_seconds;
    sums_.all_seconds += cores->all_seconds;
  }
  ++sums_.intervals;
  begin_.reset();
  if (steps_since_loop_ >= steps_between_loops_) RunLoop();  // something was always under way
}

std::optional<Quiet> QuietMonitor::Gather(PrivateFacts& facts) {
  End();
  if (link_) link_->after_gbps = LinkMeter(rank_).Gbps();
  RankReadings own = sums_;
  own.host = HostName();
  own.process = getpid();
  own.quota = CpuQuota();
  own.load = Both(load_before_, LoadAverage());
  own.clock_mhz = Both(clock_before_, ClockMhz());
  const bool on_cards = rank_.device.kind == DeviceKind::kCuda;
  if (on_cards) own.card = CardOf(rank_.device.index).uuid;
  std::vector<RankReadings> ranks = GatherRecords(rank_, own);
  if (rank_.rank() != 0) return std::nullopt;
  if (on_cards) {
    std::vector<std::string> cards;
    std::vector<int> processes;
    for (const RankReadings& rank : ranks) {
      if (rank.host != own.host) continue;
      cards.push_back(rank.card);
      processes.push_back(rank.process);
    }
    ranks.front().cards = CardReadings(ReadGpus(), cards, processes);
  }
  Quiet quiet = QuietReadings(ranks);
  quiet.link = link_;
  TakeNames(quiet, facts);
  return quiet;
}

}  // namespace sparfuse::harness
