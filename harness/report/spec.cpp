#include "harness/report/spec.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "harness/files/durable_file.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/report/figures/figure_numbers.hpp"
#include "harness/report/figures/panels.hpp"
#include "harness/report/figures/skill.hpp"
#include "harness/report/findings.hpp"
#include "harness/report/machines.hpp"
#include "harness/report/results.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/report/time_to_target.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool HasFigure(const Part& part, std::string_view kind) {
  return std::ranges::any_of(part.figures,
                             [&](const json& figure) { return figure["kind"] == kind; });
}

// The fraction of the sparsified tensors of which a step sent nothing, by block. The trial's last
// plan tells which tensors are sparsified.
std::map<int, double> MissingRates(const CellResult& cell, const std::filesystem::path& folder) {
  std::map<int, double> rates;
  for (const auto& [block, missing] : cell.Values("tensors_missing")) {
    const auto path = folder / cell.trials.at(block)->directory / "outcome.json";
    if (!SomethingIsAt(path)) continue;
    const json outcome = ReadJsonFile(path);
    const json plans = outcome.value("plans", json::array());
    const double tensors = static_cast<double>(outcome.value("layout", json::array()).size());
    if (plans.empty()) continue;
    const double sparse = tensors - plans.back()["tensors"]["dense"].get<double>();
    if (sparse > 0) rates[block] = missing / sparse;
  }
  return rates;
}

json MetricsJson(const CellResult& cell, bool with_missing_rates,
                 const std::filesystem::path& folder) {
  std::map<std::string, std::string> units;
  for (const auto& [block, trial] : cell.trials) {
    for (const auto& [name, value] : trial->metrics) {
      const auto unit = trial->units.find(name);
      units.try_emplace(std::string(name),
                        unit == trial->units.end() ? std::string_view() : unit->second);
    }
  }
  json metrics = json::object();
  for (const auto& [name, unit] : units) {
    if (cell.Values(name).empty()) continue;  // times of disturbed trials
    metrics[name] = {{"unit", unit},
                     {"values", ByBlockJson(cell.Values(name))},
                     {"average", IntervalJson(cell.Average(name))},
                     {"geometric", IntervalJson(cell.Over(name), unit.empty() ? "1" : unit)}};
  }
  if (!with_missing_rates) return metrics;
  const auto rates = MissingRates(cell, folder);
  if (rates.empty()) return metrics;
  const std::vector<double> values = OfBlocks(rates);
  metrics["missing_rate"] = {{"unit", "1"},
                             {"values", ByBlockJson(rates)},
                             {"average", IntervalJson(MeanInterval(values))},
                             {"geometric", IntervalJson(LogInterval(values))}};
  return metrics;
}

// The metrics that the figures of an experiment divide, and the methods that a part divides by.
struct Denominators {
  std::set<std::string> methods;
  std::set<std::string> metrics = {"throughput", "final_metric", "seconds_to_target"};

  Denominators(const std::vector<PartResult>& results, const PartResult& result) {
    for (const PartResult& each : results) {
      for (const json& figure : each.part->figures) {
        for (const char* key : {"y", "metric"}) {
          if (figure.contains(key)) metrics.insert(figure[key].get<std::string>());
        }
      }
    }
    methods = DenominatorsOf(*result.part);
    for (const json& figure : result.part->figures) {
      if (figure["kind"] != "ablation") continue;
      for (const json& cell : figure["cells"])  // each variant is divided by the one before it
        methods.insert(result.cells[cell].cell->config.method);
    }
  }
};

json RatiosJson(const PartResult& result, std::size_t i, const Denominators& denominators) {
  json ratios = json::object();
  const CellResult& cell = result.cells[i];
  for (const auto& method : denominators.methods) {
    const auto over = result.CounterpartOf(i, method);
    if (!over) continue;
    json metrics = json::object();
    for (const auto& metric : denominators.metrics) {
      const auto by_block = RatiosByBlock(cell, result.cells[*over], metric);
      json ratio = RatioJson(RatioOf(cell, result.cells[*over], metric));
      if (ratio.is_null()) continue;
      ratio["values"] = ByBlockJson(by_block);
      metrics[metric] = std::move(ratio);
    }
    ratios[method] = {{"cell", *over}, {"metrics", std::move(metrics)}};
  }
  return ratios;
}

// The live cells with results, by the computation that they describe. Of each mode, only the first
// cell is kept.
std::map<std::string, std::map<std::string, json>> LivePoints(
    const std::vector<PartResult>& results) {
  std::map<std::string, std::map<std::string, json>> points;
  for (std::size_t part = 0; part < results.size(); ++part) {
    for (std::size_t i = 0; i < results[part].cells.size(); ++i) {
      const CellResult& cell = results[part].cells[i];
      if (cell.cell->config.modelled() || cell.blocks() == 0) continue;
      points[CanonicalWithout(cell.cell->json, LaunchKeys())].try_emplace(
          NameOf(cell.cell->config.mode), json::array({part, i}));
    }
  }
  return points;
}

// The trials of a cell's blocks in which every trial was disturbed.
json DisturbedJson(const CellResult& cell) {
  json list = json::array();
  for (const int block : cell.disturbed) {
    const TrialRow& trial = *cell.trials.at(block);
    const auto step = trial.metrics.find("step_seconds");
    const bool has_step = step != trial.metrics.end();
    list.push_back({{"trial_id", trial.trial_id},
                    {"block", block},
                    {"step_seconds", has_step ? json(step->second) : json()},
                    {"step", has_step ? Quantity(step->second, "s") : kNone},
                    {"why", trial.WhyDisturbed()}});
  }
  return list;
}

json SetAsideJson(const CellResult& cell) {
  json list = json::array();
  for (const TrialRow* trial : cell.set_aside) {
    list.push_back({{"trial_id", trial->trial_id},
                    {"block", trial->paired_block()},
                    {"started_utc", trial->started_utc},
                    {"failure", FailureOf(*trial)},
                    {"annotations", trial->WhyLeftOut()}});
  }
  return list;
}

// The cells of results[part], each: config with every key, config_hash, dense, declared (whether it
// models a declared cluster), link (its words, and those in full), trials [{id, block,
// directory}], metrics {name: {unit, values {block: value}, average, geometric}}, reference, ratios
// {method: {cell, metrics {name: interval with values}}}, points, imported (the part's
// imported results of its setting), failure, oversubscribed, hardware, sources, set_aside.
//
// `ratios` are to the part's reference and to the methods that its figures divide by, of the
// metrics in these figures. `points`, in parts that draw a scaling, are the live cells, as [part,
// cell], that equal a modelled cell except for launch keys. If a figure shows the rate of missing
// tensors, the outcome.json files under `folder`, the results folder, are read for it.
json CellsJson(const std::vector<PartResult>& results, std::size_t part,
               const std::filesystem::path& folder) {
  const PartResult& result = results[part];
  const Denominators denominators(results, result);
  const bool rates = HasFigure(*result.part, "dual_line");
  const bool scaling = HasFigure(*result.part, "scaling");
  const auto points = scaling ? LivePoints(results) : decltype(LivePoints(results))();
  json cells = json::array();
  for (std::size_t i = 0; i < result.cells.size(); ++i) {
    const CellResult& cell = result.cells[i];
    const CellConfig& config = cell.cell->config;
    const auto reference = result.ReferenceOf(i);
    json trials = json::array();
    std::set<std::string> hardware, sources;
    for (const auto& [block, trial] : DrawnTrials(cell)) {
      trials.push_back(
          {{"id", trial->trial_id}, {"block", block}, {"directory", trial->directory}});
      hardware.insert(HardwareLine(*trial));
      if (const std::string source = SourceOf(*trial); !source.empty()) sources.insert(source);
    }
    json entry = {{"config", cell.cell->json},
                  {"config_hash", cell.cell->config_hash},
                  {"label", cell.cell->label},
                  {"dense", IsDense(config)},
                  {"declared", !DeclaredClusterOf(config).empty()},
                  {"link", {LinkText(config), LinkInFull(config)}},
                  {"trials", std::move(trials)},
                  {"metrics", MetricsJson(cell, rates, folder)},
                  {"reference", OrNull(reference)},
                  {"ratios", RatiosJson(result, i, denominators)},
                  {"imported", ImportedFor(result, config)},
                  {"failure", ShownFailure(cell)},
                  {"disturbed", DisturbedJson(cell)},
                  {"oversubscribed", cell.Oversubscribed()},
                  {"hardware", hardware},
                  {"sources", sources},
                  {"set_aside", SetAsideJson(cell)},
                  {"points", json::array()}};
    if (scaling && config.modelled()) {
      if (const auto alike = points.find(CanonicalWithout(cell.cell->json, LaunchKeys()));
          alike != points.end()) {
        for (const auto& [mode, point] : alike->second) entry["points"].push_back(point);
      }
    }
    cells.push_back(std::move(entry));
  }
  return cells;
}

json PredictionJson(const PredictionSummary& summary) {
  json cells = json::array();
  for (const PredictedCell& cell : summary.cells) {
    cells.push_back(
        {{"cell", cell.position},
         {"twin", cell.twin},
         {"observed", IntervalJson(cell.live)},
         {"predicted", cell.predicted},
         {"error", cell.error()},
         {"longest", OrNull(cell.longest)},
         {"sum", OrNull(cell.sum)},
         {"within_interval", cell.live.has_bounds() ? json(cell.within_interval()) : json()},
         {"oversubscribed", cell.oversubscribed}});
  }
  return {{"cells", std::move(cells)},
          {"may_be_off", kMayBeOff},
          {"median_error", OrNull(summary.median_error)},
          {"oversubscribed_median_error", OrNull(summary.oversubscribed_median_error)},
          {"longest_median_error", OrNull(summary.longest_median_error)},
          {"sum_median_error", OrNull(summary.sum_median_error)}};
}

// The figures of a part. A figure of predictions gets the predictions of its cells.
json FiguresJson(const Experiment& experiment, const std::vector<Part>& parts,
                 const std::vector<PartResult>& results, std::size_t i, const Catalog& catalog,
                 const std::filesystem::path& folder) {
  json figures = parts[i].figures;
  for (json& figure : figures) {
    if (figure["kind"] == "time_to_target")
      figure["time_to_target"] = TimeToTargetOf(figure, results, i, folder);
    if (figure["kind"] == "agreement" && figure.contains("published"))
      figure["agreement"] = AgreementOf(figure, results[i], experiment.calibration, catalog);
    if (figure["kind"] == "prediction" && HasTwins(parts, i)) {
      const auto shown = figure["cells"].get<std::set<std::size_t>>();
      figure["prediction"] = PredictionJson(ComparePrediction(results[i], results[i + 1], &shown));
    }
    CompleteFigure(figure, results[i], experiment.calibration, catalog);
  }
  return figures;
}

}  // namespace

std::vector<Table> TablesOf(const std::vector<Part>& parts, const std::vector<PartResult>& results,
                            const Catalog& catalog) {
  std::vector<Table> tables;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    tables.push_back(ResultTable(results[i], catalog));
    if (!results[i].imported.empty())
      tables.push_back(ImportedTable(parts[i].title + ": imported", results[i].imported));
    if (!parts[i].claims.empty()) tables.push_back(ClaimTable(results[i]));
    if (HasTwins(parts, i)) {
      tables.push_back(PredictionTable(parts[i], ComparePrediction(results[i], results[i + 1])));
    }
  }
  return tables;
}

json ExperimentSpec(const Experiment& experiment, const std::vector<Part>& parts,
                    const std::vector<PartResult>& results, const Catalog& catalog,
                    const std::filesystem::path& folder) {
  json spec = {{"form", kSpecForm},
               {"id", experiment.id},
               {"title", experiment.title},
               {"paper", experiment.paper},
               {"file", experiment.file.filename().string()},
               {"calibration", experiment.calibration},
               {"not_run", json::array()},
               {"preliminary_below", kPreliminaryBelowBlocks},
               {"confidence", kConfidence},
               {"headlines", json::array()},
               {"disturbed", DisturbedWarning(results)},
               {"judged", ToJson(JudgedByPart(results))},
               {"csv", RecordsCsv(RecordsOf(parts, results, catalog))},
               {"provenance", ProvenanceOf(results)},
               {"parts", json::array()}};
  for (const Headline& headline : HeadlinesOf(experiment, results))
    spec["headlines"].push_back(headline.sentence);
  for (const auto& [what, reason] : experiment.not_run)
    spec["not_run"].push_back({{"what", what}, {"reason", reason}});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    json excluded = json::array();
    for (const auto& out : part.excluded)
      excluded.push_back({{"cell", out.cell}, {"reason", out.reason}});
    const json& first = part.cells.front().json;
    const auto all_have = [&](const char* key) {
      return std::ranges::all_of(part.cells,
                                 [&](const Cell& cell) { return cell.json[key] == first[key]; });
    };
    json entry = {{"id", part.id},
                  {"title", part.title},
                  {"kind", first["kind"]},
                  {"mode", all_have("mode") ? first["mode"] : json()},
                  {"reference", part.reference.empty() ? json() : json(part.reference)},
                  {"blocks", part.blocks},
                  {"defaults", part.defaults},
                  {"axes", part.axes},
                  {"excluded", excluded},
                  {"left_out",
                   {{"other_systems", results[i].other_systems},
                    {"older_revisions", results[i].older_revisions},
                    {"older_profiles", results[i].older_profiles}}},
                  {"cells", CellsJson(results, i, folder)},
                  {"imported",
                   {{"results", ImportedJson(results[i].imported)},
                    {"table", ToJson(ImportedTable("", results[i].imported))}}},
                  {"figures", FiguresJson(experiment, parts, results, i, catalog, folder)},
                  // profiles have no results to lay out
                  {"table", part.cells.front().config.is_profile()
                                ? json()
                                : ToJson(ResultTable(results[i], catalog))},
                  {"prediction", json()}};
    if (HasTwins(parts, i)) {
      const PredictionSummary summary = ComparePrediction(results[i], results[i + 1]);
      entry["prediction"] = PredictionJson(summary);
      entry["prediction"]["table"] = ToJson(PredictionTable(part, summary));
    }
    spec["parts"].push_back(std::move(entry));
  }
  return spec;
}

}  // namespace sparfuse::harness
