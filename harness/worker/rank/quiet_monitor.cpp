#include "harness/worker/rank/quiet_monitor.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/device/card.hpp"
#include "harness/machine/nvml.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/machine/reference_loop.hpp"
#include "harness/machine/system.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr int kLoops = 8;

json Known(const std::optional<double>& value) { return value ? json(*value) : json(); }

json BeforeAndAfter(const std::optional<double>& before, const std::optional<double>& after) {
  return before || after ? json{Known(before), Known(after)} : json();
}

}  // namespace

QuietMonitor::QuietMonitor(const Rank& rank, int measured_steps)
    : rank_(rank), steps_between_loops_(std::max(1, (measured_steps + kLoops - 1) / kLoops)) {}

void QuietMonitor::Begin() {
  if (loop_seconds_.empty()) {
    load_before_ = LoadAverage();
    clock_before_ = ClockMhz();
  }
  RunLoop();
  rank_.Synchronise();
  begin_ = ReadCpuUse();
  begun_ = std::chrono::steady_clock::now();
}

// Ranks at once: where two of them share a physical core, they do so in every reading.
void QuietMonitor::RunLoop() {
  rank_.Synchronise();
  loop_seconds_.push_back(ReferenceLoopSeconds());
  steps_since_loop_ = 0;
}

void QuietMonitor::StepIsDone() {
  if (++steps_since_loop_ >= steps_between_loops_) RunLoop();
}

void QuietMonitor::End() {
  if (!begin_) return;
  rank_.Synchronise();
  const CpuUse end = ReadCpuUse();
  const auto cores = Between(begin_->times, end.times);
  const bool fell = begin_->times && end.times && !cores;
  if (rank_.Max({std::int64_t{fell}})[0] != 0) {  // of all ranks, whose times are added up
    begin_.reset();
    return;
  }
  const auto add = [&](const char* key, double value) {
    sums_[key] = sums_.value(key, 0.0) + value;
  };
  add("seconds", SecondsSince(begun_));
  add("own_seconds", end.own_cpu_seconds - begin_->own_cpu_seconds);
  add("ancestors_seconds", end.ancestors_cpu_seconds - begin_->ancestors_cpu_seconds);
  add("involuntary_switches",
      static_cast<double>(end.involuntary_switches - begin_->involuntary_switches));
  if (end.pressure_seconds && begin_->pressure_seconds)
    add("pressure_seconds", *end.pressure_seconds - *begin_->pressure_seconds);
  if (cores) {
    add("idle_seconds", cores->idle_seconds);
    add("interrupt_seconds", cores->interrupt_seconds);
    add("stolen_seconds", cores->stolen_seconds);
    add("all_seconds", cores->all_seconds);
  }
  sums_["cores"] = cores ? cores->cores : 0;
  sums_["intervals"] = sums_.value("intervals", 0) + 1;
  begin_.reset();
}

json QuietMonitor::Gather() {
  End();
  json own = sums_.empty() ? json{{"seconds", 0.0}, {"cores", 0}, {"intervals", 0}} : sums_;
  own["host"] = HostName();
  own["process"] = getpid();
  own["loop_seconds"] = loop_seconds_;
  own["quota"] = Known(CpuQuota());
  own["load"] = BeforeAndAfter(load_before_, LoadAverage());
  own["clock_mhz"] = BeforeAndAfter(clock_before_, ClockMhz());
  if (rank_.device.kind == DeviceKind::kCuda) own["card"] = CardOf(rank_.device.index).uuid;
  std::vector<json> ranks = GatherJson(rank_, own);
  if (rank_.rank() != 0) return nullptr;
  if (rank_.device.kind == DeviceKind::kCuda) {
    std::vector<std::string> cards;
    std::vector<int> processes;
    for (const json& rank : ranks) {
      if (rank["host"] != own["host"]) continue;
      cards.push_back(rank.value("card", ""));
      processes.push_back(rank["process"]);
    }
    ranks.front()["cards"] = CardReadings(ReadGpus(), cards, processes);
  }
  return QuietReadings(ranks);
}

}  // namespace sparfuse::harness
