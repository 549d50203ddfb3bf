#include "harness/report/figures/ablation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/catalog/model_table.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The cell of a method at a place of the panel; nothing if there is none.
std::optional<std::size_t> VariantAt(const Panel& panel, const PartResult& result,
                                     const std::string& method, const std::string& x,
                                     const json& place) {
  const auto found = std::ranges::find_if(panel.cells, [&](std::size_t i) {
    const Cell& cell = *result.cells[i].cell;
    return cell.config.method == method && ValueOf(cell, x) == place;
  });
  return found == panel.cells.end() ? std::nullopt : std::optional(*found);
}

std::string GainText(const std::optional<Interval>& ratio) {
  if (!ratio) return kNone;
  std::string text = ChangeText(ratio->value - 1);
  if (ratio->has_bounds())
    text += fmt::format(" [{}, {}]", ChangeText(ratio->low - 1), ChangeText(ratio->high - 1));
  return text;
}

}  // namespace

std::vector<std::string> VariantsOf(const json& figure, const PartResult& result) {
  std::vector<std::string> present;
  for (const std::size_t i : figure["cells"].get<std::vector<std::size_t>>()) {
    const std::string& method = result.cells[i].cell->config.method;
    if (std::ranges::find(present, method) == present.end()) present.push_back(method);
  }
  if (!figure.contains("methods")) return present;
  const json& wanted = figure["methods"];
  std::vector<std::string> variants;
  for (const std::string method : wanted.is_array() ? wanted : json::array({wanted}))
    if (std::ranges::find(present, method) != present.end()) variants.push_back(method);
  return variants;
}

std::vector<AblationStep> AblationSteps(const std::vector<std::string>& variants,
                                        const Panel& panel, const PartResult& result,
                                        const PublishedRows& published,
                                        const std::vector<const PublishedRow*>& rows,
                                        const std::string& x) {
  const std::string workload =
      WorkloadLabel(result.cells[panel.cells.front()].cell->config.workload);
  std::vector<AblationStep> steps;
  for (std::size_t v = 1; v < variants.size(); ++v) {
    AblationStep& step = steps.emplace_back(AblationStep{variants[v], variants[v - 1], {}});
    for (const PublishedRow* row : rows) {
      if (row->ours != step.variant || !row->value) continue;
      const auto base = std::ranges::find_if(rows, [&](const PublishedRow* other) {
        return other->ours == step.before && other->artifact == row->artifact &&
               other->Place(x) == row->Place(x) && other->value.value_or(0) != 0;
      });
      if (base != rows.end())
        step.printed.push_back({row->Place(x), {row, *row->value / *(*base)->value}});
    }
    for (const PublishedRow& row : published.rows()) {
      const auto gain = GainOf(row);
      const bool is_of = gain && row.IsOf(workload) && published.OursOf(gain->of) == step.variant &&
                         published.OursOf(gain->over) == step.before;
      if (is_of && step.stated == nullptr) step.stated = &row;
    }
  }
  return steps;
}

std::vector<std::vector<std::string>> AblationRows(const json& figure, const Panel& panel,
                                                   const PartResult& result,
                                                   const std::vector<AblationStep>& steps) {
  const std::string x = AxisOf(figure), metric = MetricOf(figure);
  std::vector<json> places;
  for (const std::size_t i : panel.cells) {
    const json place = ValueOf(*result.cells[i].cell, x);
    if (std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  std::ranges::stable_sort(places, Before);
  std::vector<std::vector<std::string>> rows;
  for (const AblationStep& step : steps) {
    for (const json& place : places) {
      const auto cell = VariantAt(panel, result, step.variant, x, place);
      const auto ratio = cell ? result.RatioTo(*cell, step.before, metric) : std::nullopt;
      const std::string failure = cell ? ShownFailure(result.cells[*cell]) : "";
      const auto any = std::ranges::find_if(
          panel.cells, [&](std::size_t i) { return ValueOf(*result.cells[i].cell, x) == place; });
      const json theirs_at = place.is_object() ? place.value("gbps", json()) : place;
      const auto printed = std::ranges::find_if(
          step.printed, [&](const auto& each) { return each.first == theirs_at; });
      rows.push_back({fmt::format("{} over {}", step.variant, step.before),
                      TickText(x, *result.cells[*any].cell),
                      ratio || failure.empty() ? GainText(ratio) : failure,
                      printed == step.printed.end() ? kNone : ChangeText(printed->second.ratio - 1),
                      step.stated ? fmt::format("up to {} %", step.stated->printed) : kNone,
                      ratio ? std::to_string(ratio->n) : kNone});
    }
  }
  return rows;
}

json ToJson(const AblationStep& step) {
  const auto largest = std::ranges::max_element(step.printed, {},
                                                [](const auto& each) { return each.second.ratio; });
  return {{"largest",
           largest == step.printed.end()
               ? json()
               : json::array({largest->second.row->position, 100 * (largest->second.ratio - 1)})},
          {"stated", step.stated ? json(step.stated->position) : json()}};
}

}  // namespace sparfuse::harness
