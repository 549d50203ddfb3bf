#include "harness/report/stored_experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "harness/catalog/revisions.hpp"

namespace sparfuse::harness {
namespace {

Part& PartNamed(std::vector<Part>& parts, const std::string& id) {
  const auto known = std::ranges::find(parts, id, &Part::id);
  if (known != parts.end()) return *known;
  Part& part = parts.emplace_back();
  part.id = id;
  part.title = id;
  return part;
}

// Moves twins behind their parts, where tables look for predictions.
std::vector<Part> WithTwinsBehind(std::vector<Part> parts) {
  const auto middle = std::stable_partition(parts.begin(), parts.end(),
                                            [](const Part& part) { return !IsOfTwins(part); });
  std::vector<Part> sorted(std::make_move_iterator(parts.begin()), std::make_move_iterator(middle));
  for (Part& twins : std::ranges::subrange(middle, parts.end())) {
    const auto of = std::ranges::find_if(
        sorted, [&](const Part& part) { return twins.id == part.id + std::string(kTwinsSuffix); });
    sorted.insert(of == sorted.end() ? of : of + 1, std::move(twins));
  }
  return sorted;
}

// Keys of a cell that follow from its data and weights. A recipe states its length in epochs of
// them.
constexpr std::array kOfData = {"data_id", "weights_id", "steps", "evaluate_every"};

// The identity of a configuration without the keys of its data.
std::string HashWithoutData(nlohmann::json config) {
  for (const char* key : kOfData) config.erase(key);
  return ConfigHash(config);
}

bool LacksAnId(const Cell& cell) {
  return (!cell.config.data.empty() && cell.config.data_id.empty()) ||
         (!cell.config.weights.empty() && cell.config.weights_id.empty());
}

}  // namespace

void FindStoredCells(Experiment& experiment, const std::vector<TrialRow>& rows) {
  const auto lacking = [](const Part& part) { return std::ranges::any_of(part.cells, LacksAnId); };
  if (std::ranges::none_of(experiment.parts, lacking)) return;
  // The experiment's stored configurations by their hash, within their hash without data.
  std::map<std::string, std::map<std::string, const TrialRow*>> stored;
  std::set<std::string> seen;
  for (const TrialRow& row : rows) {
    if (row.experiment != experiment.id || !seen.insert(row.config_hash).second) continue;
    stored[HashWithoutData(row.config.Value())].emplace(row.config_hash, &row);
  }
  for (Part& part : experiment.parts) {
    for (Cell& cell : part.cells) {
      if (!LacksAnId(cell)) continue;
      const auto found = stored.find(HashWithoutData(cell.json));
      if (found == stored.end() || found->second.size() != 1) continue;
      const TrialRow& row = *found->second.begin()->second;
      cell.config_hash = row.config_hash;
      cell.json = row.config.Value();
      cell.config = CellConfigOf(cell.json);
    }
  }
}

Experiment StoredExperiment(const std::string& id, const std::vector<TrialRow>& rows,
                            const Catalog& catalog, std::vector<std::string>& problems) {
  Experiment experiment;
  experiment.id = experiment.title = id;
  std::set<std::pair<std::string, std::string>> seen;  // part and configuration
  for (const TrialRow& row : rows) {
    if (row.experiment != id || row.imported()) continue;
    const bool is_new = seen.emplace(row.part, row.config_hash).second;
    try {
      if (is_new) {
        Cell cell;
        cell.config = CellConfigOf(row.config.Value());
        cell.config_hash = row.config_hash;
        cell.json = row.config.Value();
        cell.label = cell.config.method;
        RevisionsOf(catalog, cell.config);
        PartNamed(experiment.parts, row.part).cells.push_back(std::move(cell));
      }
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}: left out: {}", row.trial_id, error.what()));
      continue;
    }
    const auto part = std::ranges::find(experiment.parts, row.part, &Part::id);
    if (part != experiment.parts.end()) part->blocks = std::max(part->blocks, row.block + 1);
  }
  for (Part& part : experiment.parts) {
    if (std::ranges::any_of(part.cells,
                            [](const Cell& cell) { return cell.config.method == "dense"; }))
      part.reference = "dense";
  }
  experiment.parts = WithTwinsBehind(std::move(experiment.parts));
  return experiment;
}

}  // namespace sparfuse::harness
