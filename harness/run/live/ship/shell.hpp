// Runs commands of the shell that may take long, and ends them when the run is told to end.
#pragma once

#include <atomic>
#include <string>

namespace sparfuse::harness {

struct ShellResult {
  bool ok = false;     // it ended by itself, with status 0
  std::string output;  // standard output, without the last line end
  std::string ended;   // why it was ended before its time, or ""
};

// In a process group of its own, that ^C on a terminal does not reach: it ends when `interrupted`
// is set or after so many seconds, first by SIGTERM.
ShellResult RunShell(const std::string& command, double most_seconds,
                     const std::atomic<bool>& interrupted);

}  // namespace sparfuse::harness
