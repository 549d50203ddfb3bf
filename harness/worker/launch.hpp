// Runs the training trials of a launch: one, or several in turn.
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

  // From now on what happens is trial `i`'s. Waits for all ranks, so that none is in another
  // trial's turn. Where there are several trials, kTurnFile then lies in this one's directory.
  void Give(const Rank& rank, std::size_t i);

  // Of all turns of trial `i` so far.
  double Seconds(std::size_t i) const;

  // The directories of those whom an error now belongs to: the one whose turn it is; all, as long
  // as nobody's was.
  std::vector<std::filesystem::path> Blamed() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<std::filesystem::path> directories_;
  std::vector<double> seconds_;  // of turns that ended
  std::optional<std::size_t> current_;
  Clock::time_point begun_{};
};

// `trials`: this rank in each of them, in the launch's order; equal on all ranks. One runs all its
// steps in a row. Several are set up and warmed up one after another; then, round by round in an
// order that the first one's seed shuffles, each makes its few steps of the round
// (harness/run/plan/turns.hpp). Collective. Throws what ends the trial whose turn it is,
// and with it the launch.
void RunTrainings(std::span<const Rank> trials, Turns& turns);

}  // namespace sparfuse::harness
