#include "harness/compare/differences.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "harness/catalog/model_table.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/report/provenance.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;
using Facts = std::map<std::string, std::set<std::string>>;

constexpr std::string_view kOfOneTrial[] = {"argv", "machine.load_before", "machine.cards",
                                            "sampling", "table"};
// Facts that follow from a cell's setting. Only within one setting must they be constant.
constexpr std::string_view kOfOneSetting[] = {"machine.placement", "launch.cores_a_rank"};

bool IsOfOneTrial(const std::string& name) {
  return std::ranges::any_of(kOfOneTrial, [&](std::string_view head) {
    return name == head || (name.starts_with(head) && name[head.size()] == '.');
  });
}

// If a system's trials ran on several hosts, its facts are those of its nodes, which may differ:
// "nodes.1.gpus" is "gpus".
std::string NameOfFact(const std::string& name) {
  constexpr std::string_view kNodes = "nodes.";
  if (!name.starts_with(kNodes)) return name;
  return name.substr(name.find('.', kNodes.size()) + 1);
}

Facts FactsOf(const std::vector<CellResult>& cells) {
  PartResult part;
  part.cells = cells;
  const json summary = ProvenanceOf({part});
  Facts facts;
  for (const json& system : summary.at("systems")) {
    for (const auto& [name, value] : system.at("facts").items())
      facts["system." + NameOfFact(name)].insert(value.get<std::string>());
  }
  for (const auto& [name, values] : summary.at("facts").items()) {
    if (!IsOfOneTrial(name)) facts[name] = values.get<std::set<std::string>>();
  }
  return facts;
}

// Facts of settings that vary among the trials of one setting.
std::set<std::string> HiddenInSettings(const std::vector<CellResult>& cells) {
  std::map<std::string, std::vector<CellResult>> settings;
  for (const CellResult& cell : cells) {
    if (cell.trials.empty()) continue;
    const json& config = cell.trials.begin()->second->config.Value();
    settings[CanonicalWithout(config, MethodKeys())].push_back(cell);
  }
  std::set<std::string> hidden;
  for (const auto& [setting, members] : settings) {
    Facts facts = FactsOf(members);
    for (const std::string_view name : kOfOneSetting) {
      if (facts[std::string(name)].size() > 1) hidden.emplace(name);
    }
  }
  return hidden;
}

constexpr std::size_t kNamedTrials = 3;

using TrialsByValue = std::map<std::string, std::vector<std::string>>;

// The trials of a cell, by their value of a fact.
TrialsByValue ValuesOf(const std::string& fact, const std::map<std::string, Facts>& trials) {
  TrialsByValue values;
  for (const auto& [id, facts] : trials) {
    const auto found = facts.find(fact);
    values[found == facts.end() ? "not set" : fmt::format("{}", fmt::join(found->second, " | "))]
        .push_back(id);
  }
  return values;
}

std::string CellText(const TrialRow& trial) {
  return fmt::format("{}, {}, {} workers, {:.8}", trial.method, WorkloadLabel(trial.workload),
                     trial.workers, trial.config_hash);
}

// All values but the most frequent one.
std::string RarerValues(const TrialsByValue& values) {
  const auto most =
      std::ranges::max_element(values, {}, [](const auto& each) { return each.second.size(); });
  std::vector<std::string> said;
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (value == most) continue;
    std::vector<std::string> ids = value->second;
    const std::size_t more = ids.size() > kNamedTrials ? ids.size() - kNamedTrials : 0;
    ids.resize(ids.size() - more);
    if (more > 0) ids.push_back(fmt::format("{} more", more));
    said.push_back(fmt::format("{} in {}", value->first, fmt::join(ids, ", ")));
  }
  return fmt::format("{}", fmt::join(said, "; "));
}

}  // namespace

void NameCells(const std::vector<std::vector<CellResult>>& sides,
               const std::vector<std::string>& names, std::vector<FactDifference>& differences) {
  if (std::ranges::none_of(differences, &FactDifference::hidden)) return;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    for (const CellResult& cell : sides[side]) {
      std::map<std::string, Facts> trials;
      for (const auto& [block, trial] : cell.trials) {
        CellResult one;
        one.trials[block] = trial;
        trials[trial->trial_id] = FactsOf({one});
      }
      if (trials.size() < 2) continue;
      for (FactDifference& difference : differences) {
        if (!difference.hidden) continue;
        const TrialsByValue values = ValuesOf(difference.name, trials);
        if (values.size() < 2) continue;
        difference.cells.push_back(fmt::format("{}: {}: {}", names[side],
                                               CellText(*cell.trials.begin()->second),
                                               RarerValues(values)));
      }
    }
  }
}

std::vector<FactDifference> DifferencesOf(const std::vector<std::vector<CellResult>>& sides) {
  std::vector<Facts> facts;
  std::set<std::string> names, hidden_in_settings;
  for (const auto& cells : sides) {
    facts.push_back(FactsOf(cells));
    hidden_in_settings.merge(HiddenInSettings(cells));
    for (const auto& [name, values] : facts.back()) names.insert(name);
  }
  std::vector<FactDifference> differences;
  for (const std::string& name : names) {
    FactDifference difference{name, {}, false};
    for (Facts& side : facts) {
      const std::set<std::string>& values = side[name];
      difference.values.push_back(fmt::format("{}", fmt::join(values, " | ")));
      difference.hidden = difference.hidden || values.size() > 1;
    }
    if (std::ranges::find(kOfOneSetting, name) != std::end(kOfOneSetting))
      difference.hidden = hidden_in_settings.contains(name);
    const bool same = std::ranges::all_of(difference.values, [&](const std::string& value) {
      return value == difference.values.front();
    });
    if (!same || difference.hidden) differences.push_back(std::move(difference));
  }
  std::ranges::stable_partition(
      differences, [](const FactDifference& each) { return each.name.starts_with("system."); });
  return differences;
}

namespace {

struct Variable {
  std::set<std::string> values;
  std::size_t trials = 0;  // trials that have it
};

// The variables of all trials of a side, by name. `trials`: the number of trials.
std::map<std::string, Variable> VariablesOf(const std::vector<CellResult>& cells,
                                            std::size_t& trials) {
  std::map<std::string, const TrialRow*> all;
  for (const CellResult& cell : cells) {
    for (const auto& [block, trial] : cell.trials) all[trial->trial_id] = trial;
  }
  trials = all.size();
  std::map<std::string, Variable> variables;
  for (const auto& [id, trial] : all) {
    if (!trial->provenance.Value().is_object()) continue;
    const json environment = trial->provenance.value("environment", json());
    if (!environment.is_object()) continue;
    for (const auto& [name, value] : environment.items()) {
      Variable& variable = variables["environment." + name];
      variable.values.insert(value.is_string() ? value.get<std::string>() : value.dump());
      ++variable.trials;
    }
  }
  return variables;
}

}  // namespace

void AddPartlySet(const std::vector<std::vector<CellResult>>& sides,
                  std::vector<FactDifference>& differences) {
  std::vector<std::map<std::string, Variable>> variables;
  std::set<std::string> partly;
  std::vector<std::size_t> trials(sides.size());
  for (std::size_t side = 0; side < sides.size(); ++side) {
    variables.push_back(VariablesOf(sides[side], trials[side]));
    for (const auto& [name, variable] : variables.back()) {
      if (variable.trials < trials[side]) partly.insert(name);
    }
  }
  for (const std::string& name : partly) {
    auto row = std::ranges::find(differences, name, &FactDifference::name);
    if (row == differences.end()) {
      differences.push_back({name, std::vector<std::string>(sides.size()), true});
      row = differences.end() - 1;
    }
    row->hidden = true;
    for (std::size_t side = 0; side < sides.size(); ++side) {
      const Variable& variable = variables[side][name];
      std::vector<std::string> words(variable.values.begin(), variable.values.end());
      if (!words.empty() && variable.trials < trials[side]) words.emplace_back("not set");
      row->values[side] = fmt::format("{}", fmt::join(words, " | "));
    }
  }
}

}  // namespace sparfuse::harness
