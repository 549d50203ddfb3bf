// Reaches the nodes of a launch with the launcher's own means: it starts a shell on a node and
// forwards its input and output. Runs commands that may take long, and ends them when the run shall
// end.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "harness/run/live/launch/launch_command.hpp"

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

// The nodes that the method's launches may use: of the hostfile, or of the Slurm allocation. Throws
// Error{kConfig} if nobody tells.
std::vector<std::string> NodesOf(const LaunchMethod& method);

// Starts one process on a node, its input and output this one's.
std::vector<std::string> OnNode(const LaunchMethod& method, const std::string& node,
                                std::vector<std::string> command);

// The limits of a transfer: libraries of gigabytes over a slow network, and all other files. A
// launcher may wait for a node that is gone.
inline constexpr double kMostSecondsOfFiles = 1800, kMostSecondsOfTrials = 60;

// The last line of a script that reached its end.
inline constexpr const char* kScriptDone = "sparfuse: done";

// A folder of this process in the folder for temporary files, removed with its content.
class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  std::filesystem::path folder_;
};

class NodeChannel {
 public:
  // Both outlive this object.
  NodeChannel(const LaunchMethod& method, const std::atomic<bool>& interrupted)
      : method_(method), interrupted_(interrupted) {}

  const LaunchMethod& method() const noexcept { return method_; }
  const std::atomic<bool>& interrupted() const noexcept { return interrupted_; }

  // Runs a script there, with a command's output as its input ("": nothing), and returns the
  // script's output. Throws Error{kData} naming the node if it does not reach kScriptDone.
  std::string Run(const std::string& node, const std::string& script, const std::string& input,
                  double most_seconds) const;
  // As above, with its output in a file and the launcher's messages in another one.
  ShellResult RunInto(const std::string& node, const std::string& script,
                      const std::filesystem::path& output, const std::filesystem::path& said) const;

 private:
  const LaunchMethod& method_;
  const std::atomic<bool>& interrupted_;
};

// Calls task(each), for several at once; throws the first error after all have ended.
template <class Range, class Task>
void ForEachNode(Range& range, const Task& task) {
  constexpr std::size_t kAtOnce = 16;
  for (std::size_t begin = 0; begin < range.size(); begin += kAtOnce) {
    std::vector<std::future<void>> tasks;
    for (std::size_t i = begin; i < std::min(range.size(), begin + kAtOnce); ++i)
      tasks.push_back(std::async(std::launch::async, [&task, &each = range[i]] { task(each); }));
    for (auto& each : tasks) each.wait();
    for (auto& each : tasks) each.get();
  }
}

}  // namespace sparfuse::harness
