#include "harness/run/live/launch_end.hpp"

#include <algorithm>
#include <string>

#include "harness/records/private_facts.hpp"
#include "harness/run/live/outcome.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

using Chosen = std::vector<bool>;

bool IsAny(const Chosen& chosen) { return std::ranges::find(chosen, true) != chosen.end(); }

// Chooses the trials in which ranks left errors.
Chosen WithFailures(const std::vector<fs::path>& directories, bool consequences) {
  Chosen chosen;
  for (const fs::path& directory : directories) {
    const auto failures = RankFailures(directory);
    chosen.push_back(!failures.empty() && (consequences || !failures.front().is_consequence()));
  }
  return chosen;
}

Chosen WhoEndedIt(const std::vector<fs::path>& directories) {
  if (Chosen chosen = WithFailures(directories, false); IsAny(chosen)) return chosen;
  Chosen in_turn;
  for (const fs::path& directory : directories) {
    // After its outcome, a trial does the same as the others.
    in_turn.push_back(fs::exists(directory / kTurnFile) && !fs::exists(directory / "outcome.json"));
  }
  return IsAny(in_turn) ? in_turn : WithFailures(directories, true);
}

// Whether the trial ran out of memory that it shared with others. Alone it may have enough.
bool RanOutOfMemory(const fs::path& directory) {
  const auto failures = RankFailures(directory);
  return !failures.empty() && failures.front().kind == "out_of_memory";
}

}  // namespace

LaunchEnd EndOf(const std::vector<fs::path>& directories, const LaunchResult& end) {
  LaunchEnd found{std::vector(directories.size(), TrialEnd::kEnded), false};
  if (end.end == LaunchResult::End::kExited && end.exit_code == 0) return found;
  if (directories.size() == 1) return {{TrialEnd::kFailed}, false};
  Chosen guilty = WhoEndedIt(directories);
  for (std::size_t i = 0; i < guilty.size(); ++i) {
    if (guilty[i] && RanOutOfMemory(directories[i])) guilty.assign(guilty.size(), false);
  }
  found.alone = !IsAny(guilty);
  for (std::size_t i = 0; i < directories.size(); ++i) {
    if (guilty[i]) {
      found.trials[i] = TrialEnd::kFailed;
    } else if (!fs::exists(directories[i] / "outcome.json")) {
      found.trials[i] = TrialEnd::kAgain;
    }
  }
  return found;
}

LaunchTime TimeOf(std::span<const double> turns, double seconds, bool all_ended) {
  LaunchTime time{{turns.begin(), turns.end()}, std::nullopt};
  double left = seconds;
  std::size_t without = 0;
  for (const double turn : turns) {
    left -= turn;
    without += turn <= 0;
  }
  left = std::max(0.0, left);
  const bool shared = all_ended && without == 0;
  if (shared) time.start_seconds = left;
  const std::size_t sharers = shared ? turns.size() : without;
  for (double& trial : time.trial_seconds) {
    if (shared || trial <= 0) trial += left / static_cast<double>(sharers);
  }
  return time;
}

void EmptyForAnotherLaunch(const fs::path& directory) {
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != "config.json" && name != kPrivateFile) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove(path);
}

}  // namespace sparfuse::harness
