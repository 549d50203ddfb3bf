// Follows the output of a launch's ranks while it runs, and says if it has to end before its time
// because one of its phases takes too long. Ranks have deadlines of their own for waits in a step.
// But a rank that is stopped, or stuck in MPI's start or end, watches nothing. Keeps the output as
// the trial's log, and reads the messages at its end. It may be any bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// How the line begins that rank 0 prints once all ranks have met (core/transport/world).
inline constexpr const char* kMetLine = "ranks have met: ";
// The head of a log line that states the trial's current action; the rest of the line is shown.
inline constexpr const char* kMeasuringLine = "measuring ";
// How the line begins that rank 0 prints when a trial's outcome is written.
inline constexpr const char* kResultLine = "result written: ";

// The line that a failing rank prints, without an end of line.
std::string FailureLine(int rank, std::string_view kind, std::string_view message);
bool IsFailureLine(std::string_view line);

// The text after `head` in a line that begins with it, also after a launcher's prefix of a rank's
// lines ("[1,0]<stdout>:", "3: ").
std::optional<std::string_view> After(std::string_view head, std::string_view line);

// The counts of messages so far. Two processes share it: the reader of the output and the watcher
// of the launch.
struct LaunchSaid {
  std::atomic<std::uint64_t> bytes{0};
  std::atomic<bool> met{false}, measures{false};
  std::atomic<int> failures{0};           // lines of ranks that failed
  std::atomic<std::uint64_t> results{0};  // trials whose outcome is written
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared by processes");

// Takes output as it comes, and counts.
class LaunchLines {
 public:
  explicit LaunchLines(LaunchSaid& said) : said_(said) {}
  void Take(std::string_view bytes);

 private:
  void TakeLine();

  LaunchSaid& said_;
  std::string line_;  // its begin
};

// Seconds.
struct PhaseLimits {
  double start = 120;         // from the launch until the ranks have met
  double after_failure = 1;   // from the first rank's error until all have ended
  double after_results = 30;  // from the last trial's outcome until all have ended
  // From when the ranks have met until they measure, and then without a line from them: the longest
  // that one of the launch's trials may take. Trials that take turns say so every round.
  std::optional<double> setup = {}, silence = {};

  // start: SPARFUSE_START_SECONDS if that is set, a number above 0; else Error{kConfig}.
  static PhaseLimits OfEnvironment();
};

class LaunchWatch {
 public:
  // directories: of the launch's trials. meets: whether its ranks say that they have met.
  LaunchWatch(std::vector<std::filesystem::path> directories, bool meets, PhaseLimits limits);

  // The reason why the launch has to end now, as the end of a sentence ("..., which ..."), or "".
  // The caller gives the seconds since the launch began, which must not decrease, and the ranks'
  // messages so far; ranks may be on hosts with other folders.
  std::string WhyToEnd(double seconds, const LaunchSaid& said);
  // Whether that was so because ranks had not met.
  bool start_was_late() const noexcept { return start_was_late_; }

 private:
  std::vector<std::filesystem::path> directories_;
  bool meets_;
  PhaseLimits limits_;
  std::optional<double> failed_, complete_, met_;  // since when
  std::uint64_t said_ = 0;                         // bytes
  double said_at_ = 0;
  bool start_was_late_ = false;
};

inline constexpr std::size_t kMostLogBytes = std::size_t{16} << 20;
// Kept beyond the limit: the launcher's report on a rank that died comes last.
inline constexpr std::size_t kLogEndBytes = std::size_t{64} << 10;

// Copies a pipe to a log. After kMostLogBytes the log says so, and only the end of the further
// output is kept.
class LogCopy {
 public:
  // Descriptors of the caller's; reads of `pipe` must not block. lines: gets all that comes, or
  // null.
  LogCopy(int pipe, int log, LaunchLines* lines = nullptr)
      : pipe_(pipe), log_(log), lines_(lines) {}

  enum class Pipe { kMore, kEmpty, kClosed };  // closed: nobody has the other end any more
  // Copies the available output, at most 1 MiB.
  Pipe Drain();
  // Writes the end. Must be called last.
  void Finish();

 private:
  void Take(std::string_view bytes);
  void Write(std::string_view bytes) const;

  int pipe_, log_;
  LaunchLines* lines_;
  std::size_t written_ = 0;
  bool full_ = false;
  std::size_t left_out_ = 0;
  std::string end_;  // of the output after the limit
};

// The launcher's report, in a log, on the rank that ended the trial.
struct LauncherReport {
  std::optional<int> rank;
  std::optional<int> signal;
  std::optional<int> exit_code;
};
// Looks at the last kLogEndBytes.
LauncherReport ParseLauncherReport(std::string_view log);

// The last lines of a log: at most `lines` and at most 8 KiB.
std::string Tail(std::string_view log, std::size_t lines);

// The last line that the trial's processes printed before the launcher's report, at most 300 bytes,
// else the whole report in one line, at most 1200. It has no control characters. "" for an empty
// log.
std::string LastWords(std::string_view log);

}  // namespace sparfuse::harness
