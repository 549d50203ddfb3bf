#include "harness/run/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace sparfuse::harness {

std::string TimeLeft(double seconds) {
  if (seconds < 0) return "";
  if (seconds < 90) return fmt::format("about {:.0f} s left", std::max(1.0, seconds));
  if (seconds < 5400) return fmt::format("about {:.0f} min left", seconds / 60);
  return fmt::format("about {:.1f} h left", seconds / 3600);
}

RemainingTime::RemainingTime(std::span<const PlannedTrial> first,
                             std::span<const PlannedTrial> then) {
  for (const auto& trials : {first, then}) {
    for (const PlannedTrial& trial : trials) trials_.push_back(Noted(trial));
  }
}

std::size_t RemainingTime::GroupOf(const std::string& name) {
  const auto [group, is_new] = groups_.emplace(name, finished_.size());
  if (is_new) finished_.emplace_back();
  return group->second;
}

RemainingTime::Trial RemainingTime::Noted(const PlannedTrial& trial) {
  const CellConfig& config = trial.config;
  const std::string kind = fmt::format("{} {}", NameOf(config.kind), NameOf(config.mode));
  return {trial.estimated_seconds, GroupOf(kind),
          GroupOf(fmt::format("{} {} {}", kind, config.workload, config.workers))};
}

void RemainingTime::Insert(std::span<const PlannedTrial> next) {
  std::vector<Trial> more;
  for (const PlannedTrial& trial : next) more.push_back(Noted(trial));
  trials_.insert(trials_.begin() + static_cast<std::ptrdiff_t>(done_), more.begin(), more.end());
}

void RemainingTime::Done(double seconds) {
  const Trial& trial = trials_[done_++];
  spent_ += seconds;
  for (const std::size_t group : {trial.kind, trial.alike}) {
    Finished& finished = finished_[group];
    finished.seconds += seconds;
    ++finished.count;
    if (trial.estimate <= 0) continue;
    finished.seconds_of_estimated += seconds;
    finished.estimated += trial.estimate;
  }
}

double RemainingTime::Planned() const {
  const double remaining = Seconds();
  return remaining < 0 ? -1 : spent_ + remaining;
}

double RemainingTime::Seconds() const {
  double sum = 0;
  for (std::size_t i = done_; i < trials_.size(); ++i) {
    const Trial& trial = trials_[i];
    const Finished& kind = finished_[trial.kind];
    const Finished& alike = finished_[trial.alike];
    if (trial.estimate > 0) {
      sum += trial.estimate * (kind.seconds_of_estimated + trial.estimate) /
             (kind.estimated + trial.estimate);
    } else if (alike.count > 0) {
      sum += alike.Mean();
    } else if (kind.count > 0) {
      sum += kind.Mean();
    } else {
      return -1;
    }
  }
  return sum;
}

Progress::Progress(std::size_t total, std::FILE* out)
    : total_(total), out_(out), terminal_(::isatty(::fileno(out)) != 0) {}

void Progress::Clear() {
  if (terminal_) fmt::print(out_, "\r\033[K");
}

void Progress::Begin(const std::string& name, double remaining_seconds) {
  name_ = name;
  remaining_seconds_ = remaining_seconds;
  Tick(0);
}

void Progress::Tick(double elapsed_seconds, const std::string& doing) {
  if (!terminal_) return;
  const std::string left =
      remaining_seconds_ < 0 ? "" : TimeLeft(std::max(0.0, remaining_seconds_ - elapsed_seconds));
  Clear();
  // A wrapped line could not be cleared, so the terminal is asked to cut it.
  fmt::print(out_, "\033[?7l[{}/{}] {:.0f} s{}{}{}  {}{}\033[?7h", done_ + 1, total_,
             elapsed_seconds, left.empty() ? "" : ", ", left,
             failed_ > 0 ? fmt::format(", {} failed", failed_) : "",
             doing.empty() ? "" : doing + "  ", name_);
  std::fflush(out_);
}

void Progress::End(const std::string& name, const std::string& status, const std::string& detail,
                   double seconds, double remaining_seconds) {
  ++done_;
  if (status != "ok") ++failed_;
  Clear();
  if (terminal_ && status == "ok" && detail.empty() && done_ < total_) return;
  const std::string left = done_ < total_ ? TimeLeft(remaining_seconds) : "";
  fmt::print(out_, "[{}/{}] {:7} {:6.1f} s  {}{}{}\n", done_, total_, status, seconds, name,
             detail.empty() ? "" : ": " + detail, left.empty() ? "" : "  (" + left + ")");
  std::fflush(out_);
}

void Progress::Say(const std::string& line) {
  Clear();
  fmt::print(out_, "{}\n", line);
  std::fflush(out_);
}

}  // namespace sparfuse::harness
