#include "harness/site/site_data.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "harness/catalog/model_table.hpp"
#include "harness/compare/comparison_table.hpp"
#include "harness/compare/fingerprints.hpp"
#include "harness/compare/regime.hpp"
#include "harness/report/provenance.hpp"
#include "harness/site/site_cells.hpp"
#include "harness/systems/fingerprint.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kToldFacts[] = {"software.", "environment.", "source."};

// Where the trials came from that count; without what concerns one run of a program.
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

// What was measured of the system itself, links first: [{"what", "value"}], as texts.
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

// Hosts of the trial that had most.
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

// The entries of `listed` that are named, and of names that are not listed these alone.
json Named(const std::set<std::string>& names, const json& listed) {
  json entries = json::array();
  for (const std::string& name : names) {
    const auto found = std::ranges::find_if(
        listed, [&](const json& entry) { return entry.value("name", std::string()) == name; });
    entries.push_back({{"name", name}, {"listed", found == listed.end() ? json() : *found}});
  }
  return entries;
}

// What each system ran of each experiment, and when: [{experiment, system, trials, first_utc,
// last_utc}].
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

// The systems at `members` against the first of them; null where they have no cell in common.
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
  json entry = ComparisonJson(comparison, sides, request);
  entry["systems"] = std::move(keys);
  entry["summary"] = SummaryOf(comparison, sides, request);
  return entry;
}

std::set<std::string> ExperimentsOf(const SiteSystem& system) {
  std::set<std::string> experiments;
  for (const TrialRow& row : system.side.rows) experiments.insert(row.experiment);
  return experiments;
}

}  // namespace

json SiteData(const std::vector<SiteSystem>& systems, const SiteCatalog& catalog,
              const CompareRequest& compare) {
  CompareRequest request = compare;
  request.experiments.clear();
  json list = json::array(), pairs = json::array(), several = json::array();
  std::map<std::string, std::vector<std::size_t>> machines_of;  // by experiment
  std::set<std::string> methods, workloads;
  for (std::size_t i = 0; i < systems.size(); ++i) {
    list.push_back(SystemJson(systems[i], request.disturbed));
    for (const TrialRow& row : systems[i].side.rows) {
      methods.insert(row.method);
      workloads.insert(WorkloadLabel(row.workload));
    }
    if (systems[i].declared) continue;  // a model of what nobody has is compared with nothing
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

}  // namespace sparfuse::harness
