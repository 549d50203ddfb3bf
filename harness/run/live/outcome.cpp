#include "harness/run/live/outcome.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "harness/files/durable_file.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/launch_watch.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kTailLines = 40;

Outcome WithoutMetrics(TrialStatus status, Failure failure) {
  Outcome outcome;
  outcome.status = status;
  outcome.failure = std::move(failure);
  return outcome;
}

// A non-finite gradient makes the trial invalid: it ran, but has no throughput.
TrialStatus StatusOf(const std::string& kind) {
  return kind == FailureKindName(FailureKind::kNumeric) ? TrialStatus::kInvalid
                                                        : TrialStatus::kFailed;
}

// A rank's own error says more than its consequences in other ranks.
int Priority(const std::string& kind) {
  static const std::vector<std::string> kOrder = {
      "numeric", "data", "out_of_memory", "unsupported", "config", "internal", "timeout", "comm"};
  return static_cast<int>(std::ranges::find(kOrder, kind) - kOrder.begin());
}

std::string SignalName(int signal) {
  const char* name = strsignal(signal);
  return fmt::format("signal {} ({})", signal, name ? name : "unknown");
}

// The end of the log. It alone explains why a rank could not start, for instance without a library.
std::string Quoted(const std::string& log) {
  const std::string words = LastWords(log);
  return words.empty() ? "" : fmt::format("; its log ends: {}", words);
}

struct RankFailure {
  std::string kind, message;
  int rank = 0;
  std::filesystem::file_time_type written;

  // Whether it may be the effect of another rank's failure.
  bool is_consequence() const { return kind == "timeout" || kind == "comm"; }
};

// The errors that failed ranks left in the trial's directory, the most telling first.
std::vector<RankFailure> RankFailures(const fs::path& directory) {
  std::vector<RankFailure> failures;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("failure-rank") || entry.path().extension() != ".json") continue;
    try {
      const json failure = ReadJsonFile(entry.path());
      failures.push_back({failure.value("kind", "internal"), failure.value("message", ""),
                          failure.value("rank", 0), entry.last_write_time()});
    } catch (const std::exception&) {
      // A rank died while it wrote this file. The launcher's report names the rank.
    }
  }
  std::ranges::sort(failures, [](const RankFailure& a, const RankFailure& b) {
    return std::tuple(Priority(a.kind), a.written, a.rank) <
           std::tuple(Priority(b.kind), b.written, b.rank);
  });
  return failures;
}

Outcome FailedLaunch(const fs::path& directory, const LaunchResult& end, const std::string& log) {
  const auto failures = RankFailures(directory);
  const LauncherReport report = ParseLauncherReport(log);
  Failure failure{.kind = "internal"};
  std::string& message = failure.message;
  if (!failures.empty()) {
    const auto& first = failures.front();
    failure.kind = first.kind;
    failure.rank = first.rank;
    message = fmt::format("rank {}: {}", first.rank, first.message);
  }
  if (report.signal && (failures.empty() || failures.front().is_consequence())) {
    // The survivors' errors are consequences.
    const bool from_outside = *report.signal == SIGKILL || *report.signal == SIGTERM;
    failure.kind = from_outside ? "comm" : "internal";
    failure.rank = *report.rank;
    failure.signal = *report.signal;
    message = fmt::format("rank {} ended by {}{}", *report.rank, SignalName(*report.signal),
                          message.empty() ? "" : "; " + message);
  } else if (failures.empty() && report.rank) {
    failure.rank = *report.rank;
    message = report.exit_code ? fmt::format("rank {} exited with status {} and left no message",
                                             *report.rank, *report.exit_code)
                               : fmt::format("rank {} aborted and left no message", *report.rank);
    message += Quoted(log);
  } else if (failures.empty()) {
    message = end.end == LaunchResult::End::kStopped ? end.why
              : end.end == LaunchResult::End::kSignalled
                  ? "the launcher was ended by " + SignalName(end.signal)
                  : fmt::format("the launcher exited with status {}", end.exit_code);
    if (end.end == LaunchResult::End::kStopped) failure.kind = "timeout";
    message += Quoted(log);
  }
  const TrialStatus status = StatusOf(failure.kind);
  return WithoutMetrics(status, std::move(failure));
}

}  // namespace

Outcome JudgeOutcome(Outcome outcome) {
  std::string reason;
  const auto add = [&](const std::string& why) { reason += (reason.empty() ? "" : "; ") + why; };
  for (const auto& [name, passed] : outcome.checks) {
    if (!passed) add("check " + name + " failed");
  }
  for (const auto& [name, metric] : outcome.metrics) {
    if (!metric.value || !std::isfinite(*metric.value))
      add("metric " + name + " is not a finite number");
  }
  if (outcome.status != TrialStatus::kOk)
    add(outcome.reason.empty() ? "the worker calls it invalid" : outcome.reason);
  if (reason.empty()) return outcome;
  outcome.status = TrialStatus::kInvalid;
  outcome.metrics.clear();
  outcome.failure = Failure{.kind = "numeric", .message = reason};
  return outcome;
}

Outcome FailedOutcome(const Error& error) {
  const std::string kind(FailureKindName(error.kind()));
  return WithoutMetrics(StatusOf(kind), {.kind = kind, .message = error.what()});
}

Outcome CollectOutcome(const fs::path& directory, const LaunchResult& end, double timeout_seconds) {
  std::string log;
  try {
    log = ReadEndOfFile(directory / "log.txt", kLogEndBytes);
  } catch (const Error& error) {
    log = error.what();
  }
  Outcome outcome;
  if (end.end == LaunchResult::End::kTimeout) {
    Failure failure{.kind = "timeout",
                    .message = fmt::format("the launch did not end within {} s", timeout_seconds)};
    if (const auto failures = RankFailures(directory); !failures.empty()) {
      failure.message +=
          fmt::format("; rank {}: {}", failures.front().rank, failures.front().message);
      failure.rank = failures.front().rank;
    }
    outcome = WithoutMetrics(TrialStatus::kTimeout, std::move(failure));
  } else if (end.end != LaunchResult::End::kExited || end.exit_code != 0) {
    outcome = FailedLaunch(directory, end, log);
  } else {
    try {
      const fs::path file = directory / "outcome.json";
      outcome = JudgeOutcome(OutcomeOf(ReadJsonFile(file), file.string()));
    } catch (const Error& error) {
      outcome = FailedOutcome(error);
      outcome.failure->message =
          fmt::format("the trial ended well and left no outcome: {}", error.what());
    }
  }
  if (outcome.failure) outcome.failure->log_tail = Tail(log, kTailLines);
  return outcome;
}

namespace {

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
