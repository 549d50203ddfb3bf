// Lays out the model's results of a comparison: tables for people, objects for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "harness/compare/comparison_table.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool Contains(const Interval& interval, double value) {
  return interval.low <= value && value <= interval.high;
}

// "the model of a: profile trials of a; of b: lab (declared)".
std::string ModelText(const ShownComparison& shown) {
  const auto& [comparison, sides, request, asked] = shown;
  std::vector<std::string> texts;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    if (side < asked.profiles.size() && !asked.profiles[side].empty())
      texts.push_back(fmt::format("of {}: {}", sides[side].name, asked.profiles[side]));
  }
  return fmt::format("the model {}", fmt::join(texts, "; "));
}

Table TransportTable(const ShownComparison& shown, const ComparedPart& part) {
  const auto& [comparison, sides, request, asked] = shown;
  const std::string& first = sides[0].name;
  CellTable made(
      part, fmt::format("{}/{}: {} carried over by the model", part.experiment, part.part, first));
  Table& table = made.table;
  table.caption = fmt::format(
      "ratios to {0}: the ratio measured on {1} times the model's change from {1} to the other "
      "(modelled, never a base of a verdict); residual: the measured ratio over this product, "
      "which the profiles do not explain; {2}",
      request.reference, first, ModelText(shown));
  table.columns.push_back(fmt::format("{}: vs {}", first, request.reference));
  for (std::size_t side = 1; side < sides.size(); ++side) {
    const std::string& name = sides[side].name;
    table.columns.push_back(fmt::format("the model: {} / {}", name, first));
    table.columns.push_back(fmt::format("{}: by the model", name));
    table.columns.push_back(fmt::format("{}: vs {}", name, request.reference));
    table.columns.push_back(name + ": residual");
  }
  for (const ComparedCell& cell : part.cells) {
    std::vector<std::string> row = made.RowOf(cell);
    row.push_back(RatioText(cell.sides[0].ratio));
    for (std::size_t side = 1; side < sides.size(); ++side) {
      const Transported& carried = cell.transported[side - 1];
      std::string change = kNone;
      if (carried.model_first)
        change = RatioText(carried.model_second->value / carried.model_first->value);
      if (!carried.lacks.empty()) change += fmt::format(" [{}]", table.NoteOf(carried.lacks));
      row.push_back(change);
      row.push_back(RatioText(carried.ratio));
      row.push_back(RatioText(cell.sides[side].ratio));
      row.push_back(RatioText(carried.residual));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Adds the word "modelled" unless the ratio was measured.
std::string Marked(const std::optional<Interval>& interval, bool measured) {
  if (!interval) return kNone;
  return RatioText(interval) + (measured ? "" : ", modelled");
}

Table PlanTable(const ShownComparison& shown, const ComparedPart& part) {
  const auto& [comparison, sides, request, asked] = shown;
  const std::string& giver = asked.with_plan;
  CellTable made(part,
                 fmt::format("{}/{}: with the plans of {}", part.experiment, part.part, giver));
  Table& table = made.table;
  table.caption = fmt::format(
      "ratios to {0}; the plan: the factor by which the plan of {1} changes a side's ratio; the "
      "rest: the ratio of {1} over the side's ratio with this plan; {2}",
      request.reference, giver, ModelText(shown));
  table.columns.push_back("plan of " + giver);
  std::vector<std::size_t> others;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    if (sides[side].name == giver) continue;
    others.push_back(side);
    const std::string& name = sides[side].name;
    for (const std::string& column : {name + ": own plan", name + ": modelled", name + ": measured",
                                      name + ": the plan", name + ": the rest"}) {
      table.columns.push_back(column);
    }
  }
  for (const ComparedCell& cell : part.cells) {
    const bool all_own =
        std::ranges::all_of(cell.forced, [](const ForcedPlan& each) { return each.own; });
    if (all_own) continue;
    std::vector<std::string> row = made.RowOf(cell);
    const auto plan = std::ranges::find_if(
        cell.forced, [](const ForcedPlan& each) { return !each.units.empty(); });
    constexpr std::size_t kLongest = 24;
    std::string units = plan == cell.forced.end() ? kNone : plan->units;
    if (units.size() > kLongest)
      units = fmt::format("{} units", std::ranges::count(units, ',') + 1);
    row.push_back(units);
    for (const std::size_t side : others) {
      const ForcedPlan& forced = cell.forced[side];
      std::string own = RatioText(cell.sides[side].ratio);
      for (const std::string& why : {forced.lacks, forced.lacks_modelled}) {
        if (!why.empty()) own += fmt::format(" [{}]", table.NoteOf(why));
      }
      row.push_back(own);
      row.push_back(forced.own ? "the same plan" : RatioText(forced.modelled));
      row.push_back(RatioText(forced.measured));
      row.push_back(Marked(forced.gain, forced.gain_measured));
      row.push_back(Marked(forced.rest, forced.rest_measured));
    }
    table.rows.push_back(std::move(row));
  }
  if (table.rows.empty()) table.notes.push_back("all sides made these plans");
  return table;
}

}  // namespace

std::vector<Table> ModelledTables(const ShownComparison& shown, const ComparedPart& part) {
  std::vector<Table> tables;
  if (shown.asked.transport) tables.push_back(TransportTable(shown, part));
  if (!shown.asked.with_plan.empty()) tables.push_back(PlanTable(shown, part));
  return tables;
}

std::vector<std::string> ModelledSummary(const ShownComparison& shown) {
  const auto& [comparison, sides, request, asked] = shown;
  std::vector<std::string> sentences;
  for (std::size_t side = 1; side < sides.size() && asked.transport; ++side) {
    std::size_t carried = 0, explained = 0, beyond = 0;
    const ComparedCell* farthest = nullptr;
    const auto away = [&](const ComparedCell& cell) {
      return std::abs(std::log(cell.transported[side - 1].residual->value));
    };
    for (const ComparedPart& part : comparison.parts) {
      for (const ComparedCell& cell : part.cells) {
        const Transported& each = cell.transported[side - 1];
        carried += each.ratio.has_value();
        if (!each.residual || !each.residual->has_bounds()) continue;
        if (Contains(*each.residual, 1)) {
          ++explained;
          continue;
        }
        ++beyond;
        if (farthest == nullptr || away(cell) > away(*farthest)) farthest = &cell;
      }
    }
    std::string text = fmt::format(
        "{} carried over to {} by the model: {} ratio{}, {} with a residual that may be 1, {} with "
        "one that is not",
        sides[0].name, sides[side].name, carried, carried == 1 ? "" : "s", explained, beyond);
    if (farthest != nullptr) {
      text += fmt::format(" (farthest: {} {})", farthest->config.value("method", ""),
                          RatioText(farthest->transported[side - 1].residual));
    }
    sentences.push_back(text);
  }
  if (asked.with_plan.empty()) return sentences;
  std::size_t differ = 0, lack = 0, measured = 0;
  for (const ComparedPart& part : comparison.parts) {
    for (const ComparedCell& cell : part.cells) {
      for (const ForcedPlan& each : cell.forced) {
        lack += !each.lacks.empty() && !each.own;
        differ += each.lacks.empty() && !each.own;
        measured += each.gain_measured;
      }
    }
  }
  sentences.push_back(fmt::format(
      "Plans of {}: {} that another side plans differently and {} that cannot be forced; {} "
      "measured there",
      asked.with_plan, differ, lack, measured));
  return sentences;
}

json TransportedJson(const ComparedCell& cell, std::size_t side) {
  if (cell.transported.empty()) return nullptr;
  const Transported& carried = cell.transported[side - 1];
  return {{"mode", "modelled"},
          {"lacks", carried.lacks},
          {"model_first", RatioJson(carried.model_first)},
          {"model_second", RatioJson(carried.model_second)},
          {"ratio", RatioJson(carried.ratio)},
          {"residual", RatioJson(carried.residual)}};
}

json ForcedJson(const ComparedCell& cell, std::size_t side, const ModelRequest& asked) {
  if (cell.forced.empty()) return nullptr;
  const ForcedPlan& forced = cell.forced[side];
  return {
      {"plan_of", asked.with_plan},
      {"own", forced.own},
      {"units", forced.units},
      {"config", forced.config_hash.substr(0, kShortHash)},
      {"lacks", forced.lacks},
      {"lacks_modelled", forced.lacks_modelled},
      {"modelled", RatioJson(forced.modelled)},
      {"measured", RatioJson(forced.measured)},
      {"gain", RatioJson(forced.gain)},
      {"rest", RatioJson(forced.rest)},
      {"gain_mode", !forced.gain ? json() : json(forced.gain_measured ? "measured" : "modelled")},
      {"rest_mode", !forced.rest ? json() : json(forced.rest_measured ? "measured" : "modelled")}};
}

}  // namespace sparfuse::harness
