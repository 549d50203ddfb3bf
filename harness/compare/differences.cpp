#include "harness/compare/differences.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string_view>

#include "baselines/espresso/espresso_planner.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/report/machines.hpp"
#include "harness/systems/fingerprint.hpp"
#include "harness/wording/numbers.hpp"

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

// Espresso's ways of sending, by the runtime's numbers (baselines/espresso/espresso_planner.hpp).
constexpr const char* kEspressoWays[] = {"whole",
                                         "whole in fp16",
                                         "summed in nodes, by a root between them",
                                         "summed in nodes, all-to-all between them",
                                         "summed in nodes, gathered between them",
                                         "summed in nodes, selected on the host",
                                         "selected in nodes, by a root between them",
                                         "selected in nodes, all-to-all between them",
                                         "by one rank a node",
                                         "selected in nodes, gathered between them",
                                         "gathered by all ranks",
                                         "all-to-all of all ranks",
                                         "selected in nodes and from the sum",
                                         "in fp16 by servers",
                                         "by servers"};

std::string TextIn(const json& table, const char* key) {
  const json value = table.is_object() ? table.value(key, json()) : json();
  return value.is_string() ? value.get<std::string>() : "";
}

json ListIn(const json& table, const char* key) {
  const json value = table.is_object() ? table.value(key, json()) : json();
  return value.is_array() ? value : json::array();
}

json TableIn(const json& table, const char* key) {
  const json value = table.is_object() ? table.value(key, json()) : json();
  return value.is_object() ? value : json::object();
}

// The strategy's name for a unit's way of sending, if it numbers its ways.
std::string WayText(const std::string& strategy, const json& path) {
  const bool known = strategy == "espresso" && path.is_number_integer() && path >= 0 &&
                     path < static_cast<int>(std::size(kEspressoWays));
  return known ? kEspressoWays[path.get<std::size_t>()] : "by way " + path.dump();
}

// The numbers of units by collective: "3 dense by all-reduce", "9 by sparse-allgather".
std::vector<std::string> SentBy(const json& plan, std::size_t units, const json& options) {
  const json dense = ListIn(plan, "dense_units");
  const std::string collective = TextIn(options, "collective");
  std::vector<std::string> kinds;
  if (!dense.empty()) kinds.push_back(fmt::format("{} dense by all-reduce", dense.size()));
  if (!collective.empty() && units > dense.size())
    kinds.push_back(fmt::format("{} by {}", units - dense.size(), collective));
  return kinds;
}

std::string Sentence(const SidePlan& side, const json& plan) {
  const std::string sizes = TextIn(plan, "unit_sizes");
  const auto units = sizes.empty() ? 0 : std::ranges::count(sizes, ',') + 1;
  std::string text = fmt::format("{} makes {} exchange{}", side.side, units, units == 1 ? "" : "s");
  const json options = TableIn(side.config, "method_options");
  std::vector<std::string> kinds = SentBy(plan, static_cast<std::size_t>(units), options);
  if (const json list = ListIn(plan, "side_units"); !list.empty())
    kinds.push_back(fmt::format("{} selected from beside backward", list.size()));
  std::map<json, int> in_parts, of_path;
  for (const json& parts : ListIn(plan, "partitions")) {
    if (parts.is_number_integer() && parts > 1) ++in_parts[parts];
  }
  for (const auto& [parts, number] : in_parts)
    kinds.push_back(fmt::format("{} in {} parts", number, parts.dump()));
  for (const json& path : ListIn(plan, "paths")) ++of_path[path];
  for (const auto& [path, number] : of_path)
    kinds.push_back(fmt::format("{} {}", number, WayText(TextIn(options, "strategy"), path)));
  const json tensors = TableIn(plan, "tensors");
  for (const char* key : {"dense", "offloaded", "reduced"}) {
    const json number = tensors.value(key, json(0));
    if (number.is_number_integer() && number != 0)
      kinds.push_back(fmt::format("{} tensors {}", number.dump(), key));
  }
  if (const std::string algorithm = TextIn(side.environment, "NCCL_ALGO"); !algorithm.empty())
    kinds.push_back("NCCL told " + algorithm);
  if (side.achieved_density)
    kinds.push_back(fmt::format("density achieved {:.3g}", *side.achieved_density));
  if (!kinds.empty()) text += fmt::format(": {}", fmt::join(kinds, ", "));
  if (side.sparsify_seconds && side.exposed_seconds) {
    text +=
        fmt::format(" (selection {}, exposed communication {} a step)",
                    Quantity(*side.sparsify_seconds, "s"), Quantity(*side.exposed_seconds, "s"));
  }
  return text;
}

// The facts that identify the machine itself.
constexpr std::pair<const char*, const char*> kHardware[] = {
    {"system.gpus", "cards"}, {"system.cpu_model", "processor"}, {"system.network", "network"}};

std::optional<Fingerprint> FingerprintOfRow(const TrialRow& row) {
  const json stored = row.provenance.value("fingerprint", json());
  return stored.is_object() ? std::optional(FingerprintOf(stored, row.trial_id)) : std::nullopt;
}

std::vector<std::optional<Fingerprint>> FingerprintsOf(const std::vector<SystemSide>& sides) {
  std::vector<std::optional<Fingerprint>> fingerprints;
  for (const SystemSide& side : sides) fingerprints.push_back(FingerprintOf(side));
  return fingerprints;
}

// "3 of Intel Xeon, 8 cores, 32 GiB, network Ethernet 25 Gbit/s; 1 of ..." from the newest trial
// that lists its nodes. "" if all nodes of the side are alike.
std::string UnlikeNodes(const SystemSide& side) {
  for (const TrialRow& row : side.rows | std::views::reverse) {
    const json nodes = row.provenance.value("nodes", json::array());
    if (nodes.size() < 2) continue;
    std::vector<std::string> kinds;
    for (const json& node : nodes)
      kinds.push_back(fmt::format("{} of {}", node.value("count", 1), HardwareLine(node)));
    return fmt::format("{}", fmt::join(kinds, "; "));
  }
  return "";
}

std::string OrNone(const std::string& value) { return value.empty() ? "none" : value; }

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

json LastPlan(const json& outcome) {
  if (!outcome.is_object()) return nullptr;
  const json plans = outcome.value("plans", json::array());
  if (!plans.is_array() || plans.empty() || !plans.back().is_object()) return nullptr;
  json plan = plans.back();
  plan.erase("step");
  return plan;
}

std::string PlanDifference(const std::vector<SidePlan>& plans) {
  std::vector<std::string> sentences;
  json first;
  bool differs = false;
  for (const SidePlan& side : plans) {
    const json plan = LastPlan(side.outcome);
    if (plan.is_null()) continue;
    if (first.is_null()) first = plan;
    differs = differs || plan != first;
    sentences.push_back(Sentence(side, plan));
  }
  return differs ? fmt::format("{}", fmt::join(sentences, "; ")) : "";
}

std::optional<Fingerprint> FingerprintOf(const SystemSide& side) {
  for (const TrialRow& row : side.rows | std::views::reverse) {
    if (auto fingerprint = FingerprintOfRow(row)) return fingerprint;
  }
  return std::nullopt;
}

std::vector<std::string> ChangedDuringRuns(const SystemSide& side) {
  std::vector<std::string> sentences;
  for (const TrialRow& row : side.rows) {
    const auto fingerprint = FingerprintOfRow(row);
    if (!fingerprint) continue;
    for (const std::string& sentence : fingerprint->changed) {
      if (std::ranges::find(sentences, sentence) == sentences.end()) sentences.push_back(sentence);
    }
  }
  return sentences;
}

std::vector<std::string> WhatDiffersInHardware(const std::vector<SystemSide>& sides,
                                               const std::vector<FactDifference>& differences) {
  std::vector<std::string> sentences;
  for (const SystemSide& side : sides) {
    if (const std::string unlike = UnlikeNodes(side); !unlike.empty())
      sentences.push_back(fmt::format("{} has different nodes: {}", side.name, unlike));
    for (const std::string& changed : ChangedDuringRuns(side))
      sentences.push_back(fmt::format("{} changed during a run: {}", side.name, changed));
  }
  for (const auto& [name, words] : kHardware) {
    const auto found = std::ranges::find(differences, name, &FactDifference::name);
    if (found == differences.end()) continue;
    for (std::size_t side = 1; side < sides.size(); ++side) {
      if (found->values[side] == found->values[0]) continue;
      sentences.push_back(fmt::format("{} of {}: {}; of {}: {}", words, sides[side].name,
                                      OrNone(found->values[side]), sides[0].name,
                                      OrNone(found->values[0])));
    }
  }
  const auto fingerprints = FingerprintsOf(sides);
  const bool any = std::ranges::any_of(fingerprints, [](const auto& each) { return !!each; });
  for (std::size_t side = 0; any && side < sides.size(); ++side) {
    if (!fingerprints[side]) {
      sentences.push_back(fmt::format(
          "{} has no fingerprint: `sparfuse run --fingerprint` takes it", sides[side].name));
    } else if (side > 0 && fingerprints[0]) {
      for (const auto& each : DifferencesOf(*fingerprints[0], *fingerprints[side]))
        sentences.push_back(SentenceOf(each, sides[0].name, sides[side].name));
      if (const std::string why = WhatIsNotCompared(*fingerprints[0], *fingerprints[side]);
          !why.empty())
        sentences.push_back(
            fmt::format("fingerprints of {} and {}: {}", sides[0].name, sides[side].name, why));
    }
  }
  return sentences;
}

std::vector<FactDifference> FingerprintFacts(const std::vector<SystemSide>& sides) {
  const auto fingerprints = FingerprintsOf(sides);
  if (!fingerprints.front()) return {};
  std::set<const FingerprintQuantity*> differ;
  for (const auto& other : fingerprints) {
    if (!other) continue;
    for (const auto& each : DifferencesOf(*fingerprints.front(), *other))
      differ.insert(each.quantity);
  }
  std::vector<FactDifference> facts;
  for (const FingerprintQuantity& quantity : FingerprintQuantities()) {
    if (!differ.contains(&quantity)) continue;
    FactDifference fact{fmt::format("fingerprint: {}", quantity.words), {}, false};
    for (const auto& each : fingerprints) {
      std::string& text = fact.values.emplace_back();
      const FingerprintValue* value = each ? Find(*each, quantity) : nullptr;
      if (value == nullptr) continue;
      text = ValueText(quantity, value->value);
      if (value->worst) text += fmt::format(", slowest {}", ValueText(quantity, value->slowest()));
    }
    facts.push_back(std::move(fact));
  }
  return facts;
}

}  // namespace sparfuse::harness
