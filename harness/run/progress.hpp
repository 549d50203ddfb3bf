// Shows the progress of a run, one line that updates on a terminal, plain lines otherwise, and
// estimates how long it still takes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
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

class Progress {
 public:
  // total: trials to run.
  Progress(std::size_t total, std::FILE* out);

  // Whether Tick shows anything.
  bool terminal() const noexcept { return terminal_; }
  // remaining_seconds < 0: not known yet.
  void Begin(const std::string& name, double remaining_seconds);
  // doing: what the trial says it does, or "".
  void Tick(double elapsed_seconds, const std::string& doing = "");
  // Of a trial, whose name need not be what was begun.
  void End(const std::string& name, const std::string& status, const std::string& detail,
           double seconds, double remaining_seconds);
  // So many trials more than `total`.
  void Expect(std::size_t more) { total_ += more; }
  // A line of its own.
  void Say(const std::string& line);

 private:
  void Clear();

  std::size_t total_;
  std::size_t done_ = 0;
  std::size_t failed_ = 0;
  std::FILE* out_;
  bool terminal_;
  std::string name_;
  double remaining_seconds_ = -1;
};

// "about 4 min left", "about 20 s left"; "" below 0.
std::string TimeLeft(double seconds);

}  // namespace sparfuse::harness
