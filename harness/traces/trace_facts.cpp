#include "harness/traces/trace_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "harness/statistics/statistics.hpp"
#include "harness/traces/trace_index.hpp"
#include "harness/traces/traced_exchanges.hpp"
#include "harness/traces/traced_step.hpp"

namespace sparfuse::harness {

std::optional<Spread> SpreadOf(std::vector<double> samples) {
  if (samples.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(samples);
  return Spread{Median(samples), low, high, static_cast<int>(samples.size())};
}

namespace {

constexpr double kHostBound = 0.15;        // host-bound: at least this share of backward is idle
constexpr double kDeviceBound = 0.05;      // device-bound: at most this share is idle
constexpr double kDeviceBoundLagUs = 1e3;  // and launches are at least this far ahead
constexpr std::size_t kTenths = 10;

using Steps = std::vector<StepFacts>;

// The steps with a backward pass; the first, which is unlike others, only if there are few.
Steps UsedSteps(const TraceIndex& index, TraceFacts& facts) {
  const std::vector<StepWindow>& windows = index.windows();
  Steps steps;
  steps.reserve(windows.size());
  facts.steps_found.reserve(windows.size());
  for (const StepWindow& window : windows) {
    facts.steps_found.emplace_back(window.name);
    StepFacts step = StepOf(index, window);
    if (step.passes > 0) steps.push_back(std::move(step));
  }
  if (steps.empty()) {
    index.Fail(fmt::format(
        "no evaluation of autograd in its {} steps: expected training, with a backward pass; "
        "compiled autograd shows none",
        windows.size()));
  }
  if (steps.size() >= 3) {
    steps.erase(steps.begin());
  } else {
    facts.notes.push_back(
        fmt::format("{} step{}: too few to tell a usual step; expected four or more", steps.size(),
                    steps.size() == 1 ? "" : "s"));
  }
  CheckSteps(index, steps);
  const bool device = index.OfDevice();
  facts.device = device ? "device" : "cpu";
  std::set<int> passes;
  for (StepFacts& step : steps) {
    device ? AddOnDevice(index, step) : AddOnHost(index, step);
    KeepExchanges(index, step);
    facts.steps_used.emplace_back(step.window->name);
    facts.tensors_a_step.push_back(static_cast<int>(step.accumulations.size()));
    passes.insert(step.passes);
  }
  facts.passes_a_step.assign(passes.begin(), passes.end());
  return steps;
}

void AddTimes(const TraceIndex& index, const Steps& steps, TraceFacts& facts) {
  std::vector<TraceSpan> computing;
  computing.reserve(index.compute().size());
  for (const DeviceWork& work : index.compute()) computing.emplace_back(work.begin(), work.end());
  const Cover busy(std::move(computing));
  std::vector<double> periods, idle;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].window != steps[i - 1].window + 1) continue;
    const TraceTime from = *steps[i - 1].first_kernel, to = *steps[i].first_kernel;
    periods.push_back(Us(to - from));
    idle.push_back(Us(to - from - busy.Between(from, to)));
  }
  facts.period_us = SpreadOf(periods);
  if (!idle.empty()) facts.idle.period_us = Median(idle);
  facts.forward_us = *OverSteps(steps, [&](const StepFacts& s) { return One(s.forward); });
  facts.backward_us = *OverSteps(steps, [&](const StepFacts& s) { return One(s.backward); });
  facts.update_us =
      OverSteps(steps, [&](const StepFacts& s) { return One(s.update); }).value_or(Spread());
  const auto idle_of = [&](TraceTime StepFacts::*part) {
    return OverSteps(steps, [&](const StepFacts& s) { return One(s.*part); })->median;
  };
  facts.idle.forward_us = idle_of(&StepFacts::idle_forward);
  facts.idle.backward_us = idle_of(&StepFacts::idle_backward);
  facts.idle.update_us = idle_of(&StepFacts::idle_update);
}

void AddHostTimes(const Steps& steps, TraceFacts& facts) {
  if (std::ranges::any_of(steps, [](const StepFacts& s) { return !s.hooks.empty(); })) {
    facts.hooks_us = OverSteps(steps, [&](const StepFacts& s) {
      TraceTime tails = 0;
      for (const Accumulation& each : s.accumulations) tails += each.tail();
      return One(tails);
    });
  }
  TracedHost& host = facts.host;
  host.forward_us =
      OverSteps(steps, [&](const StepFacts& s) { return One(s.backward_begin - s.first_forward); });
  host.backward_us =
      OverSteps(steps, [&](const StepFacts& s) { return One(s.backward_end - s.backward_begin); });
  host.update_us = OverSteps(steps, [&](const StepFacts& s) { return One(s.update_host); });
  host.hook_us_a_tensor = OverSteps(steps, [](const StepFacts& s) { return s.hooks; });
  host.exchange_call_us = OverSteps(steps, [](const StepFacts& s) { return s.calls; });
  host.copy_back_us_a_tensor = OverSteps(steps, [](const StepFacts& s) { return s.copies_back; });
  const auto tenths = [&](std::vector<TraceTime> StepFacts::*part, std::optional<double>& tenth,
                          std::optional<double>& ninetieth) {
    std::vector<TraceTime> all;
    for (const StepFacts& step : steps)
      all.insert(all.end(), (step.*part).begin(), (step.*part).end());
    if (all.empty()) return;
    std::ranges::sort(all);
    tenth = Us(all[all.size() / kTenths]);
    ninetieth = Us(all[all.size() - 1 - all.size() / kTenths]);
  };
  tenths(&StepFacts::calls, facts.exchange_call_tenth_us, facts.exchange_call_ninetieth_us);
  tenths(&StepFacts::hooks, facts.hook_tenth_us, facts.hook_ninetieth_us);
  tenths(&StepFacts::bare_hooks, facts.bare_hook_tenth_us, facts.bare_hook_ninetieth_us);
  if (const auto bare = OverSteps(steps, [](const StepFacts& s) { return s.bare_hooks; }))
    facts.bare_hook_us = bare->median;
  facts.copies_back_us =
      OverSteps(steps, [](const StepFacts& s) {
        return One(std::accumulate(s.copies_back.begin(), s.copies_back.end(), TraceTime{0}));
      })->median;
}

void AddBounds(const TraceIndex& index, const Steps& steps, TraceFacts& facts) {
  std::vector<double> shares, lags;
  for (const StepFacts& step : steps) {
    shares.push_back(step.idle_share);
    lags.insert(lags.end(), step.lags_us.begin(), step.lags_us.end());
    if (index.options().keep_kernels) facts.kernels.push_back(step.kernels);
  }
  facts.idle_share_of_backward = Median(shares);
  facts.launch_lag_us = SpreadOf(lags);
  facts.bound = *facts.idle_share_of_backward > kHostBound ? "host-bound"
                : *facts.idle_share_of_backward < kDeviceBound && facts.launch_lag_us &&
                        facts.launch_lag_us->median > kDeviceBoundLagUs
                    ? "device-bound"
                    : "mixed";
}

void AddTensors(const Trace& trace, const Steps& steps, TraceFacts& facts) {
  for (std::size_t k = 0; k < steps.front().accumulations.size(); ++k) {
    std::vector<double> ready, idle_before;
    for (const StepFacts& step : steps) {
      ready.push_back(Us(step.accumulations[k].ready));
      idle_before.push_back(Us(step.accumulations[k].idle_before));
      facts.same_order = facts.same_order && ShapeOf(trace, step.accumulations[k]) ==
                                                 ShapeOf(trace, steps.front().accumulations[k]);
    }
    const Spread spread = *SpreadOf(ready);
    facts.tensors.push_back({ShapeOf(trace, steps.front().accumulations[k]), spread.median,
                             spread.low, spread.high, Median(idle_before)});
  }
  if (!facts.same_order)
    facts.notes.push_back("tensors of other shapes are ready at one position in its steps");
}

}  // namespace

TraceFacts FactsOf(const Trace& trace, const std::string& file, const TraceOptions& options) {
  const TraceIndex index(trace, file, options);
  TraceFacts facts;
  facts.file = trace.file;
  facts.sha256 = trace.sha256;
  facts.rank = trace.rank;
  facts.world = trace.world;
  facts.backend = trace.backend;
  facts.hardware = trace.hardware;
  // Before the steps, since both take memory.
  if (index.OfDevice()) facts.on_device = DeviceFacts(index);
  const Steps steps = UsedSteps(index, facts);
  AddTimes(index, steps, facts);
  AddHostTimes(steps, facts);
  if (index.OfDevice()) AddBounds(index, steps, facts);
  AddTensors(trace, steps, facts);
  AddExchanges(index, steps, facts);
  AddBroadcasts(steps, facts);
  if (facts.period_us) {
    facts.rest_us = facts.period_us->median - facts.forward_us.median - facts.backward_us.median -
                    facts.update_us.median - (facts.exposed_us ? facts.exposed_us->median : 0);
  }
  if (const int regions = steps.front().compiled_regions; regions > 0) {
    facts.compiled_regions = regions;
    facts.notes.push_back(
        fmt::format("backward in {} compiled region{}: gradients come out at their ends", regions,
                    regions == 1 ? "" : "s"));
  }
  return facts;
}

TraceFacts ReadTraceFacts(const std::string& file, const TraceOptions& options) {
  return FactsOf(ReadTrace(file), file, options);
}

}  // namespace sparfuse::harness
