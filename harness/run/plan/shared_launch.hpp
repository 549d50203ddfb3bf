// Decides which trials of a plan run side by side, in turn within one launch.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "harness/records/cell_config.hpp"
#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

// Whether one set of processes can run both: throughput trials of one workload, alike in what a
// process has one of (ranks, threads, transport, link, device, precision, deadline). What goes on
// beside steps would go on in another trial's turn, too: its trial has a launch of its own.
bool MayShareALaunch(const CellConfig& a, const CellConfig& b);

// What a trial keeps on this machine's ranks between its turns, from the workload's parameters:
// replica, gradient, optimizer, the engine's copies, residuals, payloads of all ranks. An upper
// estimate; what only the running step needs (activations) is not in it.
double BytesBetweenTurns(const CellConfig& config);

// Gives trials that may share a launch one `launch` number each group, from `next` on, and sorts
// them by it, otherwise keeping their order. Where `memory` (nothing: this machine's) does not
// suffice for a group, each of its trials has a launch of its own, and `alone` says why. Sets
// estimated_seconds to the trial's part of its launch.
void FormLaunches(std::span<PlannedTrial> trials, const std::optional<LaunchMemory>& memory,
                  bool interleave, std::size_t& next);

// Those of `trials`, which begin with it, that share the launch of the first one.
std::span<const PlannedTrial> FirstLaunch(std::span<const PlannedTrial> trials);

}  // namespace sparfuse::harness
