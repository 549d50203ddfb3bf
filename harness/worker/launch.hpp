// What the ranks of a launch do: train its trials, one or several in turn, or tell of their host.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

// One object a rank.
class Turns {
 public:
  // directories: of the launch's trials.
  explicit Turns(std::vector<std::filesystem::path> directories);

  // Gives the turn to trial `i`, to which errors belong from now on. Waits for all ranks, so that
  // none is in another trial's turn. If there are several trials, kTurnFile is then in this one's
  // directory.
  void Give(const Rank& rank, std::size_t i);

  // The seconds of all turns of trial `i` so far.
  double Seconds(std::size_t i) const;

  // The directories of the trials to which an error now belongs: the one whose turn it is, or all
  // before the first turn.
  std::vector<std::filesystem::path> Blamed() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<std::filesystem::path> directories_;
  std::vector<double> seconds_;  // of turns that ended
  std::optional<std::size_t> current_;
  Clock::time_point begun_{};
};

// `trials`: this rank in each of them, in the launch's order; equal on all ranks. A single trial
// runs all its steps in a row. Several are set up and warmed up one after another. Then, round by
// round, in an order shuffled by the first one's seed, each runs its few steps of the round
// (harness/run/plan/shared_launch.hpp). Collective. Throws the error of the trial whose turn it is,
// which ends the launch, too.
void RunTrainings(std::span<const Rank> trials, Turns& turns);

// For a rank that trains nothing: reports its host, and meets the other ranks.
// folder: of the launch (harness/run/live/hosts/preflight.hpp). Prints facts as it finds them:
// facts of the host before MPI starts; then that the ranks met, and the differences of the wall
// clocks. Returns the exit status.
int TellFacts(const std::filesystem::path& folder);

}  // namespace sparfuse::harness
