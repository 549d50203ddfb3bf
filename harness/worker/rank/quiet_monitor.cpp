#include "harness/worker/rank/quiet_monitor.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/device/card.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/machine/system.hpp"
#include "harness/worker/rank/link_meter.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kLoops = 8;

BeforeAndAfter Both(const std::optional<double>& before, const std::optional<double>& after) {
  if (!before && !after) return std::nullopt;
  return std::vector{before, after};
}

}  // namespace

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
