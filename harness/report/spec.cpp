#include "harness/report/spec.hpp"

#include <algorithm>
#include <set>

#include "harness/records/cell_keys.hpp"
#include "harness/report/disturbed.hpp"
#include "harness/report/headlines.hpp"
#include "harness/report/imported.hpp"
#include "harness/report/prediction.hpp"
#include "harness/report/provenance.hpp"
#include "harness/report/spec_cells.hpp"
#include "harness/report/tables/records.hpp"
#include "harness/report/verdicts.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json ClaimsJson(const PartResult& result) {
  json claims = json::array();
  for (const auto& judged : JudgeClaims(result)) {
    const ClaimWords words = WordsOf(judged);
    claims.push_back({{"quote", judged.claim->quote},
                      {"sentence", judged.claim->sentence},
                      {"setting", judged.claim->setting},
                      {"metric", judged.claim->metric},
                      {"source", judged.claim->source},
                      {"of", judged.claim->of},
                      {"over", judged.claim->over},
                      {"expected", words.expected},
                      {"ours", words.ours},
                      {"interval", IntervalJson(judged.ours)},
                      {"n", judged.n},
                      {"mode", judged.mode},
                      {"verdict", words.verdict}});
  }
  return claims;
}

json HeadlinesJson(const Experiment& experiment, const std::vector<PartResult>& results) {
  json headlines = json::array();
  for (const Headline& headline : HeadlinesOf(experiment, results)) {
    headlines.push_back({{"part", headline.part},
                         {"sentence", headline.sentence},
                         {"method", headline.method},
                         {"over", headline.over},
                         {"metric", headline.metric},
                         {"mode", headline.mode},
                         {"settings", headline.settings},
                         {"best", IntervalJson(headline.best)},
                         {"least", headline.least},
                         {"most", headline.most}});
  }
  return headlines;
}

json PredictionJson(const PredictionSummary& summary) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? json(*value) : json();
  };
  json cells = json::array();
  for (const PredictedCell& cell : summary.cells) {
    cells.push_back(
        {{"cell", cell.position},
         {"twin", cell.twin},
         {"observed", IntervalJson(cell.live)},
         {"predicted", cell.predicted},
         {"error", cell.error()},
         {"within_interval", cell.live.has_bounds() ? json(cell.within_interval()) : json()},
         {"oversubscribed", cell.oversubscribed}});
  }
  return {{"cells", std::move(cells)},
          {"may_be_off", kMayBeOff},
          {"median_error", optional(summary.median_error)},
          {"oversubscribed_median_error", optional(summary.oversubscribed_median_error)},
          {"ordered_pairs", summary.ordered_pairs},
          {"agreeing_pairs", summary.agreeing_pairs}};
}

// The entries of a part; one that shows predictions gets those of its cells.
json FiguresJson(const std::vector<Part>& parts, const std::vector<PartResult>& results,
                 std::size_t i) {
  json figures = parts[i].figures;
  for (json& figure : figures) {
    if (figure["kind"] != "prediction" || !HasTwins(parts, i)) continue;
    const auto shown = figure["cells"].get<std::set<std::size_t>>();
    figure["prediction"] = PredictionJson(ComparePrediction(results[i], results[i + 1], &shown));
  }
  return figures;
}

// Of a part's results; null of profiles, which have none to lay out.
json TableJson(const PartResult& result, const Catalog& catalog) {
  const bool profiles = result.part->cells.front().config.is_profile();
  return profiles ? json() : ToJson(ResultTable(result, catalog));
}

// The tables of parts[i]: its results, its claims, and the model's check where it has twins.
std::vector<Table> TablesOfPart(const std::vector<Part>& parts,
                                const std::vector<PartResult>& results, std::size_t i,
                                const Catalog& catalog) {
  std::vector<Table> tables = {ResultTable(results[i], catalog)};
  if (!results[i].imported.empty())
    tables.push_back(ImportedTable(parts[i].title + ": imported", results[i].imported));
  if (!parts[i].claims.empty()) tables.push_back(ClaimTable(results[i]));
  if (HasTwins(parts, i)) {
    tables.push_back(PredictionTable(parts[i], ComparePrediction(results[i], results[i + 1])));
  }
  return tables;
}

}  // namespace

std::vector<Table> TablesOf(const std::vector<Part>& parts, const std::vector<PartResult>& results,
                            const Catalog& catalog) {
  std::vector<Table> tables;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (auto& table : TablesOfPart(parts, results, i, catalog)) tables.push_back(std::move(table));
  }
  return tables;
}

json ExperimentSpec(const Experiment& experiment, const std::vector<Part>& parts,
                    const std::vector<PartResult>& results, const Catalog& catalog,
                    const std::filesystem::path& folder) {
  json spec = {
      {"id", experiment.id},
      {"title", experiment.title},
      {"paper", experiment.paper},
      {"file", experiment.file.filename().string()},
      {"calibration", experiment.calibration},
      {"not_run", json::array()},
      {"keys", {{"method", MethodKeys()}, {"sparsity", SparsityKeys()}, {"panel", PanelKeys()}}},
      {"preliminary_below", kPreliminaryBelowBlocks},
      {"confidence", kConfidence},
      {"headlines", HeadlinesJson(experiment, results)},
      {"disturbed", DisturbedWarning(results)},
      {"judged", ToJson(JudgedByPart(results))},
      {"csv", RecordsCsv(RecordsOf(parts, results, catalog))},
      {"provenance", ProvenanceOf(results)},
      {"parts", json::array()}};
  for (const auto& [what, reason] : experiment.not_run) {
    spec["not_run"].push_back({{"what", what}, {"reason", reason}});
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    json excluded = json::array();
    for (const auto& out : part.excluded)
      excluded.push_back({{"cell", out.cell}, {"reason", out.reason}});
    const json& first = part.cells.front().json;
    const auto all_have = [&](const char* key) {
      return std::all_of(part.cells.begin(), part.cells.end(),
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
                  {"imported", ImportedJson(results[i].imported)},
                  {"figures", FiguresJson(parts, results, i)},
                  {"claims", ClaimsJson(results[i])},
                  {"table", TableJson(results[i], catalog)},
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
