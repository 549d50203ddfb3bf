// Summarises backward's exchanges, and those before backward, over the steps of a trace.
#pragma once

#include <vector>

#include "harness/traces/trace_facts.hpp"
#include "harness/traces/traced_step.hpp"

namespace sparfuse::harness {

// Adds `exchanges`, `exposed_us`, their notes, and the collectives before backward.
void AddExchanges(const TraceIndex& index, const std::vector<StepFacts>& steps, TraceFacts& facts);
void AddBroadcasts(const std::vector<StepFacts>& steps, TraceFacts& facts);

// The note on exchanges of one rank of several.
inline constexpr const char* kWaitingNote =
    "one rank's exchanges include waiting for the last rank: the least over steps bounds a "
    "transfer from above; give the other ranks' files, too";

// The times of all steps; none if there are none. `of`: the times of a step, in ns.
template <class Of>
std::optional<Spread> OverSteps(const std::vector<StepFacts>& steps, Of of) {
  std::vector<double> all;
  for (const StepFacts& step : steps) {
    for (const TraceTime ns : of(step)) all.push_back(Us(ns));
  }
  return SpreadOf(std::move(all));
}

// A time, or none, for OverSteps.
inline std::vector<TraceTime> One(std::optional<TraceTime> value) {
  return value ? std::vector<TraceTime>{*value} : std::vector<TraceTime>();
}

}  // namespace sparfuse::harness
