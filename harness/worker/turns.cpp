// Keeps the turns among the trials of a launch. Needs no workload.
#include <fstream>
#include <system_error>
#include <utility>

#include "harness/run/live/outcome.hpp"
#include "harness/worker/launch.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {

Turns::Turns(std::vector<std::filesystem::path> directories)
    : directories_(std::move(directories)), seconds_(directories_.size()) {}

void Turns::Give(const Rank& rank, std::size_t i) {
  rank.Synchronise();
  if (rank.rank() == 0 && directories_.size() > 1) {
    const std::filesystem::path file = directories_[i] / kTurnFile;
    if (!current_) {
      std::ofstream(file).flush();
    } else if (*current_ != i) {
      std::error_code failed;  // the launch goes on; only messages then tell who ended it
      std::filesystem::rename(directories_[*current_] / kTurnFile, file, failed);
    }
  }
  if (current_) seconds_[*current_] += SecondsSince(begun_);
  current_ = i;
  begun_ = Clock::now();
}

double Turns::Seconds(std::size_t i) const {
  return seconds_[i] + (current_ == i ? SecondsSince(begun_) : 0);
}

std::vector<std::filesystem::path> Turns::Blamed() const {
  if (!current_) return directories_;
  return {directories_[*current_]};
}

}  // namespace sparfuse::harness
