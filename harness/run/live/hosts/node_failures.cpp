#include "harness/run/live/hosts/node_failures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/expression.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/live/launch/hostfile.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/ship/node_channel.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFailures = 2;

// The rank that a failure is about. Another rank may have reported it.
std::optional<std::size_t> RankIn(const Failure& failure) {
  if (failure.signal && failure.rank) return static_cast<std::size_t>(*failure.rank);
  static const Expression kSilent("rank (\\d+) does not answer", "a silent rank");
  std::vector<std::string_view> found;
  if (!kSilent.Find(failure.message, found)) return std::nullopt;
  return std::stoul(std::string(found[1]));
}

// Schedulers, hostfiles and hosts may disagree on domains.
std::string ShortName(const std::string& host) { return host.substr(0, host.find('.')); }

bool IsOfAName(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
}

// Whether the line has the node as a word: "n1" is in "slurmstepd-n1:", but not in "n12".
bool Names(const std::string& line, const std::string& node) {
  for (auto at = line.find(node); at != std::string::npos; at = line.find(node, at + 1)) {
    const std::size_t end = at + node.size();
    if ((at == 0 || !IsOfAName(line[at - 1])) && (end == line.size() || !IsOfAName(line[end])))
      return true;
  }
  return false;
}

// Whether a launcher, or a program that it starts ranks with, reports an error.
bool TellsOfTrouble(std::string line) {
  std::ranges::transform(line, line.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(
      std::initializer_list<const char*>{"error", "fail", "unable", "lost", "refused", "no route",
                                         "timed out", "could not", "cannot", "unreachable"},
      [&](const char* word) { return line.find(word) != std::string::npos; });
}

}  // namespace

Blame NodeToBlame(const std::vector<std::string>& nodes, const TrialLaunch& launch,
                  const Failure& failure, const std::string& log) {
  const std::string& kind = failure.kind;
  const std::vector<std::string> hosts =
      launch.binding ? launch.binding->hosts : std::vector<std::string>();
  if (const auto rank = RankIn(failure); rank && *rank < hosts.size()) {
    const std::string host = ShortName(hosts[*rank]);
    const auto node = std::ranges::find(nodes, host, ShortName);
    return node == nodes.end() ? Blame{} : Blame{*node, failure.message};
  }
  if (kind != "comm" && kind != "timeout" && kind != "internal") return {};
  std::map<std::string, std::string> named;  // the first line that names each node
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (!TellsOfTrouble(line)) continue;
    for (const std::string& node : nodes) {
      if (Names(line, node)) named.try_emplace(node, line);
    }
  }
  if (named.size() != 1) return {};
  return {named.begin()->first, named.begin()->second};
}

NodeFailures::NodeFailures(const LaunchMethod& method, std::vector<std::string> nodes)
    : method_(method), nodes_(std::move(nodes)) {}

std::string NodeFailures::Count(const std::string& node, int needed, const std::string& why) {
  const int failures = ++failures_[node];
  if (failures < kMostFailures || std::ranges::find(left_out_, node) != left_out_.end()) return "";
  const std::string said =
      fmt::format("{} launches failed on {} (the last: {})", failures, node, why);
  if (nodes_.size() <= left_out_.size() + static_cast<std::size_t>(needed))
    return fmt::format("{}; no other node can take its place", said);
  left_out_.push_back(node);
  return fmt::format("{}: it is left out from here on", said);
}

std::string NodeFailures::Judge(const LaunchFailure& failed, TrialLaunch& launch) {
  if (LeavesSomeOut(failed.needed)) launch.left_out = left_out_;
  if (failed.trials.empty()) return "";
  std::vector<Blame> blamed = failed.silent;
  if (blamed.empty()) blamed.push_back(NodeToBlame(nodes_, launch, failed.failure, failed.log));
  if (blamed.front().node.empty()) return "";
  launch.failed_on = blamed.front().node;
  std::vector<std::string> said;
  for (const auto& [node, why] : blamed) {
    std::vector<PlannedTrial>& failures = failed_on_[node];
    // Of several nodes, the first one records the trials that must run again.
    if (&node == &blamed.front().node)
      failures.insert(failures.end(), failed.trials.begin(), failed.trials.end());
    const std::size_t before = left_out_.size();
    if (std::string words = Count(node, failed.needed, why); !words.empty())
      said.push_back(std::move(words));
    if (left_out_.size() == before) continue;
    elsewhere_.insert(elsewhere_.end(), failures.begin(), failures.end());
    failures.clear();
  }
  return fmt::format("{}", fmt::join(said, "; "));
}

bool NodeFailures::LeavesSomeOut(int needed) const {
  return !left_out_.empty() && nodes_.size() >= left_out_.size() + static_cast<std::size_t>(needed);
}

std::vector<std::string> NodeFailures::NodesFor(int needed) const {
  std::vector<std::string> nodes = nodes_;
  if (LeavesSomeOut(needed)) {
    std::erase_if(nodes, [&](const std::string& node) {
      return std::ranges::find(left_out_, node) != left_out_.end();
    });
  }
  return nodes;
}

LaunchMethod NodeFailures::Method(const fs::path& file, int needed) const {
  LaunchMethod method = method_;
  if (!LeavesSomeOut(needed)) return method;
  if (method.hostfile.empty()) {
    method.left_out = left_out_;
    return method;
  }
  WriteFileDurably(file, LinesOfHosts(method.hostfile, [&](const std::string& name) {
                     return std::ranges::find(left_out_, name) == left_out_.end();
                   }));
  method.hostfile = file;  // now in mpirun's form
  method.mpirun_hostfile.clear();
  return method;
}

std::vector<std::string> ChoosableNodes(const LaunchMethod& method) {
  const bool hostfile = !method.hostfile.empty();
  if (!hostfile && method.kind != LaunchMethod::Kind::kSrun) return {};
  return NodesOf(method);
}

}  // namespace sparfuse::harness
