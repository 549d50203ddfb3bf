#include "harness/site/site_systems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>

#include "harness/report/machines.hpp"

namespace sparfuse::harness {
namespace {

// The owner of trials. Machines sort before declared clusters and imported results.
using Owner = std::pair<bool, std::string>;

Owner OwnerOf(const TrialRow& row) {
  if (const std::string machine = MachineOf(row); !machine.empty()) return {false, machine};
  if (row.imported()) {  // by source, too: runs of one source are not runs of another
    return {true, fmt::format("{} {} ({})", kImported, row.part,
                              row.system_hash.substr(0, kShownMachineHash))};
  }
  return {true, "cluster " + row.system.value("cluster", std::string())};
}

// Keeps the trials with the profile of the cell's newest trial that counts, because inputs of a
// model are never mixed.
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

// The number of cards by model; nothing if a number is unknown.
std::optional<std::map<std::string, std::int64_t>> CardsOf(const Node& node) {
  std::map<std::string, std::int64_t> cards;
  for (const NodeCard& card : node.cards) {
    if (!card.count) return std::nullopt;
    cards[card.model] += *card.count;
  }
  return cards;
}

bool IsOf(const Node& machine, const Node& described) {
  return !described.processor.empty() && described.processor == machine.processor &&
         described.cores && described.cores == machine.cores && described.memory_gib &&
         described.memory_gib == machine.memory_gib && CardsOf(described) &&
         CardsOf(described) == CardsOf(machine);
}

// Gives each system a unique name for people.
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

bool IsDescribedBy(const System& system, const std::vector<Node>& described) {
  std::vector<Node> nodes = system.nodes;
  if (system.machine) nodes.push_back(*system.machine);
  return !nodes.empty() && std::ranges::all_of(nodes, [&](const Node& machine) {
    return std::ranges::any_of(described, [&](const Node& each) { return IsOf(machine, each); });
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
    // A trial that ran on the machine describes it; so does a trial with its profile.
    const auto ran = std::ranges::find_if(
        trials, [](const TrialRow& row) { return !row.system.contains("cluster"); });
    const TrialRow& telling = ran == trials.end() ? trials.back() : *ran;
    if (declared) {
      system.side.hardware = HardwareLine(telling);
    } else {
      const System told = SystemOf(telling.system);
      const System machine{.machine = told.machine,
                           .nodes = told.nodes};  // the machine's part of a profile
      system.side.hardware = HardwareLine(ToJson(machine));
      std::ranges::copy_if(
          described, std::back_inserter(system.described),
          [&](const DescribedSystem& each) { return IsDescribedBy(machine, each.nodes); });
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
