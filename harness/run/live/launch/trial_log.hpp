// Keeps and reads a trial's log: the kept part of its processes' output, and the messages at its
// end. The output may be any bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "harness/run/live/launch/launch_watch.hpp"

namespace sparfuse::harness {

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
