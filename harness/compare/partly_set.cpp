#include "harness/compare/partly_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

struct Variable {
  std::set<std::string> values;
  std::size_t trials = 0;  // that have it
};

// Of all trials of a side, by name; `trials`: how many these are.
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
