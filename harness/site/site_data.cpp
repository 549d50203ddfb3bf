#include "harness/site/site_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/compare/comparison_table.hpp"
#include "harness/compare/differences.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/report/machines.hpp"
#include "harness/report/tables/columns.hpp"
#include "harness/systems/fingerprint.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kToldFacts[] = {"software.", "environment.", "source."};

// The provenance of the trials that count, without facts of one run of a program.
json ToldProvenanceOf(const SystemSide& side, DisturbedTrials disturbed) {
  PartResult all;
  for (const auto& [key, cell] : CellsOf(side, disturbed)) all.cells.push_back(cell.result);
  json provenance = ProvenanceOf({std::move(all)});
  json facts = json::object();
  for (const auto& [name, values] : provenance["facts"].items()) {
    if (std::ranges::any_of(kToldFacts, [&](const char* head) { return name.starts_with(head); }))
      facts[name] = values;
  }
  provenance["facts"] = std::move(facts);
  return provenance;
}

// The measurements of the system itself, links first: [{"what", "value"}], as texts.
json FingerprintJson(const SystemSide& side) {
  json said = json::array();
  const auto fingerprint = FingerprintOf(side);
  if (!fingerprint) return said;
  for (const FingerprintQuantity& quantity : FingerprintQuantities()) {
    if (const FingerprintValue* measured = Find(*fingerprint, quantity))
      said.push_back({{"what", quantity.words}, {"value", ValueText(quantity, measured->value)}});
  }
  return said;
}

// The largest number of hosts of any trial.
int MostHostsOf(const SystemSide& side) {
  int most = 0;
  for (const TrialRow& row : side.rows) most = std::max(most, HostsOf(row));
  return most;
}

json SystemJson(const SiteSystem& system, DisturbedTrials disturbed) {
  json described = json::array();
  for (const DescribedSystem& each : system.described)
    described.push_back({{"name", each.name}, {"content", each.content}});
  return {{"key", system.key},
          {"name", system.side.name},
          {"declared", system.declared},
          {"hardware", system.side.hardware},
          {"described", described},
          {"hosts", MostHostsOf(system.side)},
          {"fingerprint", FingerprintJson(system.side)},
          {"changed", ChangedDuringRuns(system.side)},
          {"trials", system.side.rows.size()},
          {"provenance", ToldProvenanceOf(system.side, disturbed)}};
}

// The entries of `listed` with these names. A name that is not listed has no more than its name.
json Named(const std::set<std::string>& names, const json& listed) {
  json entries = json::array();
  for (const std::string& name : names) {
    const auto found = std::ranges::find_if(
        listed, [&](const json& entry) { return entry.value("name", std::string()) == name; });
    entries.push_back({{"name", name}, {"listed", found == listed.end() ? json() : *found}});
  }
  return entries;
}

// The runs of each experiment on each system: [{experiment, system, trials, first_utc, last_utc}].
json RunsOf(const std::vector<SiteSystem>& systems) {
  json runs = json::array();
  for (const SiteSystem& system : systems) {
    std::map<std::string, std::set<std::string>> dates;
    std::map<std::string, std::size_t> trials;
    for (const TrialRow& row : system.side.rows) {
      dates[row.experiment].insert(row.started_utc);
      ++trials[row.experiment];
    }
    for (const auto& [experiment, when] : dates) {
      runs.push_back({{"experiment", experiment},
                      {"system", system.key},
                      {"trials", trials[experiment]},
                      {"first_utc", *when.begin()},
                      {"last_utc", *when.rbegin()}});
    }
  }
  return runs;
}

// Compares the systems at `members` with the first of them. Null if they have no cell in common.
json ComparisonOf(const std::vector<SiteSystem>& systems, const std::vector<std::size_t>& members,
                  const CompareRequest& request) {
  std::vector<SystemSide> sides;
  json keys = json::array();
  for (const std::size_t member : members) {
    sides.push_back(systems[member].side);
    keys.push_back(systems[member].key);
  }
  const SystemComparison comparison = CompareSystems(sides, request);
  if (comparison.parts.empty()) return nullptr;
  const ShownComparison shown{comparison, sides, request};
  json entry = ComparisonJson(shown);
  entry["systems"] = std::move(keys);
  entry["summary"] = SummaryOf(shown);
  for (const ComparedPart& part : comparison.parts) {
    entry["regimes"].push_back({{"experiment", part.experiment},
                                {"part", part.part},
                                {"table", ToJson(RegimeTable(shown, part))}});
  }
  entry["different"] = ToJson(DifferenceTable(shown));
  return entry;
}

std::set<std::string> ExperimentsOf(const SiteSystem& system) {
  std::set<std::string> experiments;
  for (const TrialRow& row : system.side.rows) experiments.insert(row.experiment);
  return experiments;
}

// Any trial of the cell, for facts that all of them share.
const TrialRow& AnyOf(const SideCell& cell) {
  return cell.newest != nullptr ? *cell.newest : *cell.result.set_aside.back();
}

// Keys that distinguish cells on one page. They are the keys in which cells of the part differ, and
// keys of figure panels in which cells of several parts differ.
std::vector<KeyColumn> KeysOf(const std::vector<json>& part, const std::vector<KeyColumn>& all) {
  static const std::set<std::string> kShown = {"workload", "workers", "mode", "kind"};
  std::vector<KeyColumn> keys;
  const auto add = [&](const KeyColumn& key) {
    const bool is_there =
        std::ranges::any_of(keys, [&](const KeyColumn& each) { return each.path == key.path; });
    if (!is_there && !kShown.contains(key.path)) keys.push_back(key);
  };
  for (const KeyColumn& key : all) {
    if (std::ranges::count(PanelKeys(), key.path.substr(0, key.path.find('.'))) > 0) add(key);
  }
  for (const KeyColumn& key : KeyColumnsOf(part)) add(key);
  return keys;
}

json SettingJson(const json& config, const std::vector<KeyColumn>& keys) {
  json setting = json::array();
  const bool dense = config.value("sparsifier", std::string()) == "none";
  for (const KeyColumn& key : keys) {
    if (dense && std::ranges::count(SparsityKeys(), key.path.substr(0, key.path.find('.'))) > 0)
      continue;  // the method's name implies it
    if (const std::string text = KeyText(config, key); text != kNone)
      setting.push_back({key.title, text});
  }
  return setting;
}

json TrialsJson(const CellResult& cell) {
  json ids = json::array();
  for (const auto& [block, trial] : cell.trials) ids.push_back(trial->trial_id);
  return ids;
}

json FailedJson(const CellResult& cell) {
  json failed = json::array();
  for (const TrialRow* trial : cell.set_aside) {
    const std::vector<std::string> why = trial->WhyLeftOut();
    failed.push_back({{"trial", trial->trial_id},
                      {"why", FailureOf(*trial)},
                      {"message", why.empty() ? "" : why.back()}});
  }
  return failed;
}

// Ratios within one system, whose references do not depend on other systems' cells.
std::map<CellKey, ComparedCell> RatiosOf(SystemSide side, const CompareRequest& request) {
  side.outcome = [](const TrialRow&) { return json(); };  // plans are compared elsewhere
  CompareRequest alone = request;
  alone.experiments.clear();
  alone.least_sides = 1;
  std::map<CellKey, ComparedCell> ratios;
  SystemComparison compared = CompareSystems({std::move(side)}, alone);
  for (ComparedPart& part : compared.parts) {
    for (ComparedCell& cell : part.cells) ratios.emplace(cell.key, std::move(cell));
  }
  return ratios;
}

std::string MetricOf(const TrialRow& trial, const CompareRequest& request) {
  if (!request.metric.empty()) return request.metric;
  if (trial.imported()) return trial.config.value("metric", std::string("throughput"));
  return trial.kind == "convergence" ? "final_metric" : "throughput";
}

// Each cell has: system, experiment, part, config_hash, method, workload, workers, mode, kind,
// setting [[key, text]], metric, unit, is_reference, reference (config_hash or null), ratio and
// absolute ({value, low, high, n} or null), lacks (why there is no ratio), trials (ids), disturbed
// (number of disturbed trials), apart (number of them whose values do not count), failed [{trial,
// why, message}]. Sorted by experiment, part, setting, method and system.
json SiteCells(const std::vector<SiteSystem>& systems, const CompareRequest& request) {
  std::vector<std::map<CellKey, SideCell>> cells;
  for (const SiteSystem& system : systems) cells.push_back(CellsOf(system.side, request.disturbed));
  std::map<std::pair<std::string, std::string>, std::map<std::string, json>> parts;
  std::map<std::string, json> every;
  for (const auto& of_system : cells) {
    for (const auto& [key, cell] : of_system) {
      const json& config = AnyOf(cell).config.Value();
      parts[{key.experiment, key.part}][key.config_hash] = config;
      every[key.config_hash] = config;
    }
  }
  const auto values = [](const std::map<std::string, json>& by_hash) {
    std::vector<json> configs;
    for (const auto& [hash, config] : by_hash) configs.push_back(config);
    return configs;
  };
  const std::vector<KeyColumn> all = KeyColumnsOf(values(every));
  std::map<std::pair<std::string, std::string>, std::vector<KeyColumn>> keys;
  for (const auto& [part, configs] : parts) keys[part] = KeysOf(values(configs), all);

  std::vector<json> entries;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    const std::map<CellKey, ComparedCell> ratios = RatiosOf(systems[i].side, request);
    for (const auto& [key, cell] : cells[i]) {
      const TrialRow& trial = AnyOf(cell);
      const std::string metric = MetricOf(trial, request);
      const auto found = ratios.find(key);
      const bool is_reference = trial.method == request.reference && !trial.imported();
      const bool has_ratio = found != ratios.end() && !trial.imported();
      const SideValue* value = has_ratio ? &found->second.sides[0] : nullptr;
      const auto absolute = cell.result.Over(metric);
      std::string lacks = value == nullptr ? "" : value->lacks;
      if (trial.imported()) lacks = "imported";
      if (cell.newest == nullptr) lacks = FailureOf(trial);
      if (is_reference && cell.newest != nullptr && !absolute)
        lacks = cell.result.OnlyDisturbed() ? "disturbed" : "no " + metric;
      const auto in_unit = trial.units.find(metric);
      const std::string unit(in_unit == trial.units.end() ? "" : in_unit->second);
      entries.push_back(
          {{"system", systems[i].key},
           {"experiment", key.experiment},
           {"part", key.part},
           {"config_hash", key.config_hash},
           {"method", trial.method},
           {"workload", WorkloadLabel(trial.workload)},
           {"workers", trial.workers},
           {"mode", trial.mode},
           {"kind", trial.kind},
           {"setting", SettingJson(trial.config, keys.at({key.experiment, key.part}))},
           {"metric", metric},
           {"unit", unit},
           {"is_reference", is_reference},
           {"reference", value == nullptr || found->second.reference.empty()
                             ? json()
                             : json(found->second.reference)},
           {"ratio", value == nullptr || !lacks.empty() ? json() : RatioJson(value->ratio)},
           {"absolute", IntervalJson(absolute, unit)},
           {"lacks", lacks},
           {"trials", TrialsJson(cell.result)},
           {"disturbed", cell.result.disturbed.size()},
           {"apart", cell.result.ValuesApart(metric).size()},
           {"failed", FailedJson(cell.result)}});
    }
  }
  std::ranges::stable_sort(entries, {}, [](const json& entry) {
    return std::tuple(entry["experiment"].get<std::string>(), entry["part"].get<std::string>(),
                      entry["mode"].get<std::string>(), entry["workload"].get<std::string>(),
                      entry["workers"].get<int>(), entry["setting"].dump(),
                      entry["method"].get<std::string>());
  });
  return entries;
}

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

json SiteData(const std::vector<SiteSystem>& systems, const SiteCatalog& catalog,
              const CompareRequest& compare) {
  CompareRequest request = compare;
  request.experiments.clear();
  json list = json::array(), pairs = json::array(), several = json::array();
  std::map<std::string, std::vector<std::size_t>> machines_of;  // indices of systems, by experiment
  std::set<std::string> methods, workloads;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    list.push_back(SystemJson(systems[i], request.disturbed));
    for (const TrialRow& row : systems[i].side.rows) {
      methods.insert(row.method);
      workloads.insert(WorkloadLabel(row.workload));
    }
    if (systems[i].declared) continue;  // a model of a cluster that nobody has is not compared
    for (const std::string& experiment : ExperimentsOf(systems[i]))
      machines_of[experiment].push_back(i);
  }
  std::set<std::pair<std::size_t, std::size_t>> wanted;
  for (const auto& [experiment, machines] : machines_of) {
    for (auto first = machines.begin(); first != machines.end(); ++first) {
      for (auto second = first + 1; second != machines.end(); ++second)
        wanted.emplace(*first, *second);
    }
    if (machines.size() < 3) continue;
    request.experiments = {experiment};
    json entry = ComparisonOf(systems, machines, request);
    if (!entry.is_null()) several.push_back(std::move(entry));
    request.experiments.clear();
  }
  for (const auto& [first, second] : wanted) {
    json entry = ComparisonOf(systems, {first, second}, request);
    if (!entry.is_null()) pairs.push_back(std::move(entry));
  }
  return {{"schema", kSiteSchema},
          {"reference", request.reference},
          {"within", request.within},
          {"preliminary_below", kPreliminaryBelowBlocks},
          {"systems", list},
          {"methods", Named(methods, catalog.methods)},
          {"workloads", Named(workloads, catalog.workloads)},
          {"runs", RunsOf(systems)},
          {"cells", SiteCells(systems, request)},
          {"pairs", pairs},
          {"several", several}};
}

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
