#include "harness/report/machines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "harness/records/node.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Flattens {"a": {"b": 1}} to "a.b". Lists of plain values are joined with spaces.
void Flatten(const std::string& prefix, const json& value,
             std::map<std::string, std::string>& flat) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      Flatten(prefix.empty() ? key : prefix + "." + key, inner, flat);
  } else if (value.is_array() &&
             std::ranges::none_of(value, [](const json& each) { return each.is_structured(); })) {
    std::string text;
    for (const json& each : value) text += (text.empty() ? "" : " ") + Text(each);
    flat[prefix] = text;
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      Flatten(prefix + "." + std::to_string(i), value[i], flat);
  } else if (!value.is_null()) {
    flat[prefix] = Text(value);
  }
}

// "2 rank(s) on 1 host(s)", from the list of hosts by rank in trials.
std::string PlacementLine(const json& hosts) {
  std::set<std::string> different;
  for (const json& host : hosts) different.insert(host.dump());
  return fmt::format("{} rank(s) on {} host(s)", hosts.size(), different.size());
}

// The facts of a system. If it lists its nodes, their facts are used, as in "nodes.0.cpu_model",
// with the network as a line.
std::map<std::string, std::string> FactsOf(json system) {
  if (system.is_object() && system.contains("nodes")) {
    for (json& node : system["nodes"]) node["network"] = NetworkLine(NodeOf(node));
  }
  std::map<std::string, std::string> flat;
  Flatten("", system, flat);
  return flat;
}

}  // namespace

std::map<std::string, std::string> MachinesOf(const std::vector<TrialRow>& rows) {
  std::map<std::string, std::string> machines;
  for (const TrialRow& row : rows) {
    const std::string machine = MachineOf(row);
    if (!machine.empty() && row.kind != "profile") machines[machine] = HardwareLine(row);
  }
  return machines;
}

std::string ShownMachine(const std::string& machine) {
  const std::size_t at = machine.find('@');
  return machine.substr(0, kShownMachineHash) + (at == std::string::npos ? "" : machine.substr(at));
}

std::string ListOf(const std::map<std::string, std::string>& machines) {
  std::string text;
  for (const auto& [hash, hardware] : machines)
    text += fmt::format(
        "\n  {}  {}{}", ShownMachine(hash), hardware,
        hash.find('@') != std::string::npos ? "; several hosts, of another results folder" : "");
  return text.empty() ? "\n  none" : text;
}

std::string NeedMachine(const std::map<std::string, std::string>& machines, const std::string& head,
                        const std::string& where) {
  const std::size_t at = head.find('@');
  const std::string origin = at == std::string::npos ? "" : head.substr(at);
  std::vector<std::string> found, own;
  for (const auto& [hash, hardware] : machines) {
    const std::size_t from = std::min(hash.find('@'), hash.size());
    if (!hash.starts_with(head.substr(0, at)) || !hash.substr(from).starts_with(origin)) continue;
    found.push_back(hash);
    if (from == hash.size()) own.push_back(hash);
  }
  if (found.size() == 1) return found.front();
  if (own.size() == 1 && !head.empty()) return own.front();
  if (machines.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}: expected trials that ran on a system, measured or emulated; it "
                               "has none",
                               where));
  }
  if (head.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} has several systems: expected the head of the hash of "
                                        "one of{}",
                                        where, ListOf(machines)));
  }
  SPARFUSE_THROW(
      kConfig, fmt::format("{} system of {} begins with \"{}\": expected one of{}",
                           found.empty() ? "no" : "more than one", where, head, ListOf(machines)));
}

std::string SourceOf(const TrialRow& trial) {
  const json source = trial.provenance.value("source", json::object());
  if (!source.is_object()) return "";
  const json commit = source.value("commit", json());
  if (!commit.is_string() || commit == "") return "";
  const json dirty = source.value("dirty", json());
  return commit.get<std::string>().substr(0, 10) + (dirty == true ? " with changes" : "");
}

json ProvenanceOf(const std::vector<PartResult>& results) {
  std::map<std::string, const TrialRow*> trials;
  for (const auto& result : results) {
    for (const auto& cell : result.cells) {
      for (const auto& [block, trial] : cell.trials) trials[trial->trial_id] = trial;
    }
  }
  std::map<std::string, std::size_t> sources, of_system;
  std::map<std::string, const TrialRow*> systems;
  std::map<std::string, std::set<std::string>> facts;
  std::set<std::string> dates;
  for (const auto& [id, trial] : trials) {
    ++sources[SourceOf(*trial)];
    ++of_system[trial->system_hash];
    systems[trial->system_hash] = trial;
    dates.insert(trial->started_utc);
    std::map<std::string, std::string> flat;
    json provenance = trial->provenance.Value();
    if (provenance.is_object()) {
      provenance.erase("layout");       // every tensor of the workload
      provenance.erase("fingerprint");  // compared separately
      provenance.erase("nodes");        // part of the system
      if (json& machine = provenance["machine"];
          machine.is_object() && machine.contains("placement"))
        machine["placement"] = PlacementLine(machine["placement"]);
    }
    Flatten("", provenance, flat);
    for (const auto& [name, value] : flat) facts[name].insert(value);
  }
  json summary = {{"trials", trials.size()},
                  {"first_utc", dates.empty() ? "" : *dates.begin()},
                  {"last_utc", dates.empty() ? "" : *dates.rbegin()},
                  {"sources", json::array()},
                  {"systems", json::array()},
                  {"facts", facts}};
  for (const auto& [source, count] : sources)
    summary["sources"].push_back({{"source", source}, {"trials", count}});
  for (const auto& [hash, trial] : systems) {
    summary["systems"].push_back({{"hash", hash},
                                  {"hardware", HardwareLine(*trial)},
                                  {"trials", of_system[hash]},
                                  {"facts", FactsOf(trial->system)}});
  }
  return summary;
}

}  // namespace sparfuse::harness
