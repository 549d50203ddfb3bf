#include "harness/report/spec.hpp"

#include <algorithm>

#include "harness/report/prediction.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

json IntervalJson(const std::optional<Interval>& interval) {
  if (!interval) return nullptr;
  return {{"value", interval->value},
          {"low", interval->has_bounds() ? json(interval->low) : json()},
          {"high", interval->has_bounds() ? json(interval->high) : json()},
          {"n", interval->n}};
}

json ClaimsJson(const PartResult& result) {
  json claims = json::array();
  for (const auto& judged : JudgeClaims(result)) {
    const ClaimWords words = WordsOf(judged);
    claims.push_back({{"quote", judged.claim->quote},
                      {"sentence", judged.claim->sentence},
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

// The tables of parts[i]: its results, its claims, and the model's check where it has twins.
std::vector<Table> TablesOfPart(const std::vector<Part>& parts,
                                const std::vector<PartResult>& results, std::size_t i,
                                const Catalog& catalog) {
  std::vector<Table> tables = {ResultTable(results[i], catalog)};
  if (!parts[i].claims.empty()) tables.push_back(ClaimTable(results[i]));
  if (i + 1 < parts.size() && parts[i + 1].id == parts[i].id + ".predicted") {
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
                    const std::vector<PartResult>& results) {
  json spec = {{"id", experiment.id},
               {"title", experiment.title},
               {"paper", experiment.paper},
               {"file", experiment.file.string()},
               {"calibration", experiment.calibration},
               {"not_run", json::array()},
               {"parts", json::array()}};
  for (const auto& [what, reason] : experiment.not_run) {
    spec["not_run"].push_back({{"what", what}, {"reason", reason}});
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    json cells = json::array();
    for (const auto& cell : part.cells) {
      json entry = cell.config;
      entry["config_hash"] = cell.config_hash;
      cells.push_back(std::move(entry));
    }
    json excluded = json::array();
    for (const auto& out : part.excluded)
      excluded.push_back({{"cell", out.cell}, {"reason", out.reason}});
    const json& first = part.cells.front().config;
    const auto all_have = [&](const char* key) {
      return std::all_of(part.cells.begin(), part.cells.end(),
                         [&](const Cell& cell) { return cell.config[key] == first[key]; });
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
                  {"cells", cells},
                  {"figures", part.figures},
                  {"claims", ClaimsJson(results[i])}};
    spec["parts"].push_back(std::move(entry));
  }
  return spec;
}

}  // namespace sparfuse::harness
