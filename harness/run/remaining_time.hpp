// Estimates how long a run still takes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

// From history where there is some, else from this run's mean of modelled and of live trials.
class RemainingTime {
 public:
  // Trials in the order of their ends.
  RemainingTime(std::span<const PlannedTrial> first, std::span<const PlannedTrial> then) {
    for (const auto& trials : {first, then}) {
      for (const auto& trial : trials) {
        trials_.push_back({trial.estimated_seconds, trial.config.modelled() ? 1u : 0u});
      }
    }
  }
  // These run before those that are left.
  void Insert(std::span<const PlannedTrial> next) {
    std::vector<Trial> more;
    for (const auto& trial : next)
      more.push_back({trial.estimated_seconds, trial.config.modelled() ? 1u : 0u});
    trials_.insert(trials_.begin() + static_cast<std::ptrdiff_t>(done_), more.begin(), more.end());
  }
  // The next one took its part of its launch.
  void Done(double seconds) {
    const std::size_t kind = trials_[done_++].kind;
    spent_[kind] += seconds;
    ++count_[kind];
  }
  // What all trials take, those done included; below 0: not known.
  double Planned() const {
    const double remaining = Seconds();
    return remaining < 0 ? -1 : spent_[0] + spent_[1] + remaining;
  }
  // Below 0: not known.
  double Seconds() const {
    double sum = 0;
    for (std::size_t i = done_; i < trials_.size(); ++i) {
      const auto [estimate, kind] = trials_[i];
      if (estimate <= 0 && count_[kind] == 0) return -1;
      sum += estimate > 0 ? estimate : spent_[kind] / static_cast<double>(count_[kind]);
    }
    return sum;
  }

 private:
  struct Trial {
    double estimate;
    std::size_t kind;  // 0 live, 1 modelled
  };
  std::vector<Trial> trials_;
  std::size_t done_ = 0;
  double spent_[2] = {};
  std::size_t count_[2] = {};
};

}  // namespace sparfuse::harness
