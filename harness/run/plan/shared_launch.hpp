// Decides which trials of a plan run side by side, in turn within one launch, and divides them into
// turns: the number of steps at once, and the order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "harness/records/cell_config.hpp"
#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

// Whether one set of processes can run both: throughput trials of one workload that agree in all
// properties of a process (ranks, threads, transport, link, device, precision, deadline). A trial
// with work in parallel to its steps has a launch of its own, because that work would go on in
// another trial's turn.
bool MayShareALaunch(const CellConfig& a, const CellConfig& b);

// The bytes that a trial keeps on this machine's ranks between its turns, from the workload's
// parameters: replica, gradient, optimizer, the engine's copies, residuals, payloads of all ranks.
// An upper estimate, without the memory that only the running step needs (activations).
double BytesBetweenTurns(const CellConfig& config);

// Gives each group of trials that may share a launch one `launch` number, from `next` on, and sorts
// trials by it, otherwise keeping their order. If `memory` (nothing: this machine's) is too small
// for a group, each of its trials has a launch of its own, and `alone` says why. Sets
// estimated_seconds to the trial's part of its launch.
void FormLaunches(std::span<PlannedTrial> trials, const std::optional<LaunchMemory>& memory,
                  bool interleave, std::size_t& next);

// The front of `trials` that shares the launch of the first one.
std::span<const PlannedTrial> FirstLaunch(std::span<const PlannedTrial> trials);

// std::shuffle differs between standard libraries; an order that a seed names must not.
template <class T>
void Shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

// The measured steps of each round of a trial of `steps` that takes turns with others. A round has
// at most three, so that a longer burst of other load meets the other trials too; rounds are as
// even as possible. Each round begins with one more step, which is discarded, because caches still
// hold another trial's data.
std::vector<int> StepsOfRounds(int steps, int every = 1);

// The positions [0, trials) in the order of their turns, for each of `rounds`; equal for equal
// seeds.
std::vector<std::vector<std::size_t>> OrderOfRounds(std::size_t trials, std::size_t rounds,
                                                    std::uint64_t seed);

}  // namespace sparfuse::harness
