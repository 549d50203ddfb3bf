// Shows the progress of a run, one line that updates on a terminal, plain lines otherwise, and
// estimates how long it still takes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

// The remaining time of a run. A trial's time is estimated from history if there is some, else from
// finished trials of its kind in this run, if possible with its workload and number of workers.
// Estimates from history are scaled by the ratio of the times of finished trials of the kind to
// their estimates; history itself counts as one more trial.
class RemainingTime {
 public:
  // Trials in the order of their ends.
  RemainingTime(std::span<const PlannedTrial> first, std::span<const PlannedTrial> then);

  // Adds trials that run before the remaining ones.
  void Insert(std::span<const PlannedTrial> next);
  // The next one took its part of its launch.
  void Done(double seconds);
  // The time of all trials, finished ones included; below 0: unknown.
  double Planned() const;
  // Below 0: not known.
  double Seconds() const;

 private:
  struct Trial {
    double estimate;  // 0: no history
    std::size_t kind, alike;
  };
  // Finished trials of a kind, or of one workload and number of workers of it.
  struct Finished {
    double seconds = 0, seconds_of_estimated = 0, estimated = 0;
    std::size_t count = 0;
    double Mean() const { return seconds / static_cast<double>(count); }
  };
  Trial Noted(const PlannedTrial& trial);
  std::size_t GroupOf(const std::string& name);

  std::vector<Trial> trials_;
  std::size_t done_ = 0;
  double spent_ = 0;
  std::map<std::string, std::size_t> groups_;  // by their kind: position below
  std::vector<Finished> finished_;
};

class Progress {
 public:
  // total: trials to run.
  Progress(std::size_t total, std::FILE* out);

  // Whether Tick shows anything.
  bool terminal() const noexcept { return terminal_; }
  // remaining_seconds < 0: not known yet.
  void Begin(const std::string& name, double remaining_seconds);
  // doing: the trial's own words for its current action, or "".
  void Tick(double elapsed_seconds, const std::string& doing = "");
  // Ends a trial. Its name may differ from the name at its begin.
  void End(const std::string& name, const std::string& status, const std::string& detail,
           double seconds, double remaining_seconds);
  // Adds this many trials to `total`.
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
