#include "harness/run/live/ship/node_channel.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "core/base/error.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/placement.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using Kind = LaunchMethod::Kind;
using Words = std::vector<std::string>;

std::string LineOf(const Words& words) {
  std::string line;
  for (const std::string& word : words) line += ShellQuoted(word) + " ";
  return line;
}

}  // namespace

std::vector<std::string> NodesOf(const LaunchMethod& method) {
  std::vector<std::string> nodes;
  if (!method.hostfile.empty()) {
    for (const Host& host : HostsOf(method)) nodes.push_back(host.name);
    return nodes;
  }
  if (method.kind != Kind::kTemplate) {
    bool ok = false;
    const std::string list =
        CommandOutput("scontrol show hostnames \"$SLURM_JOB_NODELIST\" 2>/dev/null", ok);
    std::istringstream lines(list);
    for (std::string line; ok && std::getline(lines, line);) nodes.push_back(line);
  }
  std::erase_if(nodes, [&](const std::string& node) {
    return std::ranges::find(method.left_out, node) != method.left_out.end();
  });
  if (nodes.empty()) {
    SPARFUSE_THROW(kConfig,
                   "which nodes there are is read from --hostfile, or asked of Slurm: expected "
                   "--launch srun or mpirun, with a hostfile or within an allocation");
  }
  return nodes;
}

// --overlap: a step that ends may still hold the node.
Words OnNode(const LaunchMethod& method, const std::string& node, Words command) {
  Words words;
  if (method.kind == Kind::kSrun) {
    words = {"srun",       "--mpi=none",         "--overlap", "--nodes=1",
             "--ntasks=1", "--nodelist=" + node, "--chdir=/", "--quiet"};
  } else {
    words = {"mpirun"};
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    if (!method.interface.empty()) {
      for (const char* of : {"btl_tcp_if_include", "oob_tcp_if_include"})
        words.insert(words.end(), {"--mca", of, method.interface});
    }
    words.insert(words.end(), {"--host", node, "-np", "1", "-wdir", "/"});
  }
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

Staging::Staging() {
  std::string path = (fs::temp_directory_path() / "sparfuse-ship-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) SPARFUSE_THROW(kData, "cannot make a folder: " + path);
  folder_ = path;
}

Staging::~Staging() {
  std::error_code none;
  fs::remove_all(folder_, none);
}

std::string NodeChannel::Run(const std::string& node, const std::string& script,
                             const std::string& input, double most_seconds) const {
  const std::string line = LineOf(OnNode(method_, node, {"sh", "-c", script}));
  const ShellResult result =
      RunShell(input.empty() ? line + "</dev/null 2>&1" : input + " | " + line + "2>&1",
               most_seconds, interrupted_);
  if (!result.ok || result.output.find(kScriptDone) == std::string::npos) {
    SPARFUSE_THROW(kData, fmt::format("--ship: node {}: \"{}\"{}", node, result.output,
                                      result.ended.empty() ? "" : ": " + result.ended));
  }
  return result.output;
}

ShellResult NodeChannel::RunInto(const std::string& node, const std::string& script,
                                 const fs::path& output, const fs::path& said) const {
  const std::string line = LineOf(OnNode(method_, node, {"sh", "-c", script}));
  return RunShell(fmt::format("{}</dev/null >{} 2>{}", line, ShellQuoted(output.string()),
                              ShellQuoted(said.string())),
                  kMostSecondsOfTrials, interrupted_);
}

}  // namespace sparfuse::harness
