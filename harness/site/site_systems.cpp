#include "harness/site/site_systems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "harness/report/machines.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Whose trials these are: machines sort before declared clusters and what was imported.
using Owner = std::pair<bool, std::string>;

Owner OwnerOf(const TrialRow& row) {
  if (const std::string machine = MachineOf(row); !machine.empty()) return {false, machine};
  if (row.imported()) {  // by source, too: runs of one are no runs of another
    return {true, fmt::format("{} {} ({})", kImported, row.part,
                              row.system_hash.substr(0, kShownMachineHash))};
  }
  return {true, "cluster " + row.system.value("cluster", std::string())};
}

// A model's inputs are never mixed: a cell's trials are of the profile of its newest one that
// counts.
void KeepNewestProfiles(std::vector<TrialRow>& rows) {
  std::map<CellKey, std::string> newest;
  for (const TrialRow& row : rows) {
    if (row.counts()) newest[{row.experiment, row.part, row.config_hash}] = row.system_hash;
  }
  std::erase_if(rows, [&](const TrialRow& row) {
    const auto found = newest.find({row.experiment, row.part, row.config_hash});
    return row.system.contains("cluster") && found != newest.end() &&
           found->second != row.system_hash;
  });
}

std::map<std::string, int> CardsOf(const json& node) {
  std::map<std::string, int> cards;
  for (const json& card : node.value("card", json::array())) {
    if (!card.at("count").is_number_integer()) return {{"", -1}};
    cards[card.at("model").get<std::string>()] += card.at("count").get<int>();
  }
  return cards;
}

// The part of a system that is its machine.
const json& MachineIn(const json& system) {
  return system.contains("machine") ? system.at("machine") : system;
}

// A name that no other system has, for people.
void NameSystems(std::vector<SiteSystem>& systems) {
  std::map<std::string, int> named;
  for (const SiteSystem& system : systems) {
    if (system.described.size() == 1) ++named[system.described[0].name];
  }
  for (SiteSystem& system : systems) {
    system.side.name = system.key;
    if (system.described.size() != 1) continue;
    const std::string& name = system.described[0].name;
    system.side.name = named[name] == 1 ? name : fmt::format("{} ({})", name, system.key);
  }
}

}  // namespace

bool IsDescribedBy(const json& machine, const json& description) {
  if (!machine.is_object()) return false;
  if (machine.contains("nodes")) {
    return std::ranges::all_of(machine["nodes"],
                               [&](const json& node) { return IsDescribedBy(node, description); });
  }
  std::map<std::string, int> cards;
  for (const json& card : machine.value("gpus", json::array())) {
    if (card.is_string()) ++cards[card.get<std::string>()];
  }
  const auto nodes = description.value("node", json::array());
  return std::ranges::any_of(nodes, [&](const json& node) {
    return node.value("processor", json()) == machine.value("cpu_model", json()) &&
           node.value("cores", json()) == machine.value("cores", json()) &&
           node.value("memory_gib", json()) == machine.value("memory_gib", json()) &&
           CardsOf(node) == cards;
  });
}

std::vector<SiteSystem> SystemsOf(const std::vector<TrialRow>& rows,
                                  const std::vector<DescribedSystem>& described,
                                  const std::filesystem::path& results) {
  std::map<Owner, std::vector<TrialRow>> owners;
  for (const TrialRow& row : rows) {
    if (row.kind != "profile") owners[OwnerOf(row)].push_back(row);
  }
  std::vector<SiteSystem> systems;
  for (auto& [owner, trials] : owners) {
    const auto& [declared, name] = owner;
    SiteSystem system;
    system.declared = declared;
    system.key = declared ? name : ShownMachine(name);
    // A trial that ran on the machine says what it is; one of its profile says so, too.
    const auto ran = std::ranges::find_if(
        trials, [](const TrialRow& row) { return !row.system.contains("cluster"); });
    const TrialRow& telling = ran == trials.end() ? trials.back() : *ran;
    system.side.hardware =
        declared ? HardwareLine(telling) : HardwareLine(MachineIn(telling.system));
    for (const DescribedSystem& each : described) {
      if (!declared && IsDescribedBy(MachineIn(telling.system), each.content))
        system.described.push_back(each);
    }
    KeepNewestProfiles(trials);
    system.side.rows = std::move(trials);
    system.side.outcome = OutcomesIn(results);
    systems.push_back(std::move(system));
  }
  NameSystems(systems);
  return systems;
}

}  // namespace sparfuse::harness
