#include "harness/report/tables/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/catalog/metrics.hpp"
#include "harness/report/tables/columns.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kThin = "\u2009";

std::string Number(double value) {
  if (value == 0) return "0";
  if (std::abs(value) < 1e-4) return fmt::format("{:.2e}", value);
  if (std::abs(value) < 999.5) {
    return fmt::format("{:.{}f}", value,
                       std::max(0, 2 - static_cast<int>(std::floor(std::log10(std::abs(value))))));
  }
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') text += kThin;
    text += digits[i];
  }
  return text;
}

std::string MetricText(const CellResult& result, const MetricColumn& column,
                       const std::string& unit) {
  const auto interval = result.Over(column.metric);
  if (!interval) {  // a mean that may be zero has no logarithm
    const auto mean = result.Mean(column.metric);
    if (mean) return Quantity(*mean, unit);
    const auto apart = MeanInterval(OfBlocks(result.ValuesApart(column.metric)));
    return apart ? "(" + Quantity(apart->value, unit) + ")" : kNone;
  }
  std::string text = Quantity(interval->value, unit);
  if (column.interval && interval->has_bounds()) {
    text += fmt::format(" ± {:.1f} %", 100 * std::max(interval->high / interval->value - 1,
                                                      1 - interval->low / interval->value));
  }
  return text;
}

// What ratios to the reference rest on, where trials took turns; else "".
std::string HowPaired(const PartResult& result) {
  std::size_t in_turn = 0;
  std::size_t pairs = 0;
  for (std::size_t i = 0; i < result.cells.size(); ++i) {
    const auto reference = result.ReferenceOf(i);
    if (!reference) continue;
    const CellResult& over = result.cells[*reference];
    in_turn += BlocksInTurn(result.cells[i], over);
    for (const auto& [block, trial] : result.cells[i].trials) pairs += over.trials.contains(block);
  }
  if (in_turn == 0) return "";
  if (in_turn == pairs) return "; what is compared took turns in one launch of each block";
  return fmt::format("; of {} compared pairs of trials {} took turns in one launch", pairs,
                     in_turn);
}

// Blocks that the first column's numbers are of.
std::size_t BlocksOf(const CellResult& cell, const Part& part) {
  return IsTimed(MetricColumnsOf(part).front().metric) ? cell.blocks() : cell.trials.size();
}

std::string Caption(const PartResult& result) {
  std::set<std::string> modes;
  for (const auto& cell : result.part->cells) modes.insert(cell.json["mode"].get<std::string>());
  std::string caption;
  for (const auto& mode : modes) caption += (caption.empty() ? "" : " and ") + mode;
  for (const auto& line : result.hardware) caption += "; " + line;
  std::size_t least = SIZE_MAX;
  bool live = false;
  bool only_disturbed = false;
  for (const auto& cell : result.cells) {
    only_disturbed = only_disturbed || cell.OnlyDisturbed();
    const std::size_t blocks = BlocksOf(cell, *result.part);
    if (cell.cell->json["mode"] == "modelled" || blocks == 0) continue;
    live = true;
    least = std::min(least, blocks);
  }
  if (live && least < kPreliminaryBelowBlocks) {
    caption +=
        fmt::format("; preliminary: {} block(s), {} make a result", least, kPreliminaryBelowBlocks);
  }
  caption += HowPaired(result);
  if (std::any_of(result.cells.begin(), result.cells.end(), [](const CellResult& cell) {
        return cell.Mean("step_uncertainty").has_value();
      })) {
    caption +=
        "; ± of modelled steps and throughput: what the profile's errors of measurement leave";
  }
  if (std::any_of(result.cells.begin(), result.cells.end(), [](const CellResult& cell) {
        return !cell.trials.empty() && !cell.trials.begin()->second->launch.draws.empty();
      })) {
    caption +=
        "; intervals of what is modelled on a declared cluster: what the ranges of its "
        "inputs leave, all draws but one on either side";
  }
  if (only_disturbed) caption += "; in brackets: of disturbed trials, which do not count";
  const char* separator = "; trials left out: ";
  for (const auto& [count, whose] : {std::pair(result.other_systems, "of other machines"),
                                     {result.older_revisions, "of older revisions"},
                                     {result.older_profiles, "of older profiles"}}) {
    if (count == 0) continue;
    caption += fmt::format("{}{} {}", separator, count, whose);
    separator = ", ";
  }
  return caption;
}

}  // namespace

std::string Quantity(double value, std::string_view unit) {
  if (unit == "s" && value != 0) {
    if (std::abs(value) < 1e-3) return Number(value * 1e6) + " µs";
    if (std::abs(value) < 1) return Number(value * 1e3) + " ms";
  }
  if (unit == "B") {
    for (const auto& [factor, name] : {std::pair{1e9, " GB"}, {1e6, " MB"}, {1e3, " kB"}}) {
      if (std::abs(value) >= factor) return Number(value / factor) + name;
    }
  }
  return unit == "1" ? Number(value) : Number(value) + " " + std::string(unit);
}

std::string RatioText(const std::optional<Interval>& ratio) {
  if (!ratio) return kNone;
  const auto number = [](double value) {  // below 0.1, two decimals say too little
    return value < 0.095 ? Number(value) : fmt::format("{:.2f}", value);
  };
  if (!ratio->has_bounds()) return number(ratio->value) + "x";
  return fmt::format("{}x [{}, {}]", number(ratio->value), number(ratio->low), number(ratio->high));
}

Table ResultTable(const PartResult& result, const Catalog& catalog) {
  const Part& part = *result.part;
  Table table;
  table.title = part.title;
  table.caption = Caption(result);
  const auto keys = KeyColumnsOf(part);
  const auto metrics = MetricColumnsOf(part);
  table.columns.push_back("method");
  for (const auto& key : keys) table.columns.push_back(key.title);
  for (const auto& metric : metrics) {
    table.columns.push_back(metric.title);
    if (&metric == &metrics.front() && !part.reference.empty()) {
      table.columns.push_back("vs " + part.reference + " (95 %)");
    }
  }
  table.columns.push_back("n");
  for (std::size_t i = 0; i < result.cells.size(); ++i) {
    const auto& cell = result.cells[i];
    std::vector<std::string> row = {cell.cell->json["method"].get<std::string>()};
    for (const auto& key : keys) row.push_back(KeyText(cell.cell->json, key));
    for (const auto& metric : metrics) {
      const bool first = &metric == &metrics.front();
      const std::string unit = UnitOf(metric.metric, cell.cell->json, catalog);
      const bool apart = first && cell.OnlyDisturbed() && IsTimed(metric.metric);
      row.push_back(first && !cell.failure.empty()
                        ? cell.failure
                        : (apart ? "disturbed " : "") + MetricText(cell, metric, unit));
      if (!first || part.reference.empty()) continue;
      const auto reference = result.ReferenceOf(i);
      row.push_back(reference ? RatioText(RatioOf(cell, result.cells[*reference], metric.metric))
                              : kNone);
    }
    row.push_back(std::to_string(BlocksOf(cell, part)));
    table.rows.push_back(std::move(row));
  }
  for (const auto& excluded : part.excluded) {
    auto note = std::find(table.notes.begin(), table.notes.end(), excluded.reason);
    if (note == table.notes.end()) note = table.notes.insert(note, excluded.reason);
    std::vector<std::string> row = {excluded.cell.value("method", kNone)};
    for (const auto& key : keys) row.push_back(KeyText(excluded.cell, key));
    row.push_back(fmt::format("{} [{}]", kNone, note - table.notes.begin() + 1));
    row.resize(table.columns.size(), kNone);
    table.rows.push_back(std::move(row));
  }
  return table;
}

const char* ComparisonSign(Comparison comparison) {
  switch (comparison) {
    case Comparison::kLess:
      return "<";
    case Comparison::kAtMost:
      return "<=";
    case Comparison::kEquals:
      return "=";
    case Comparison::kAtLeast:
      return ">=";
    case Comparison::kMore:
      return ">";
  }
  return "?";
}

ClaimWords WordsOf(const ClaimResult& judged) {
  const Claim& claim = *judged.claim;
  const bool ratio = claim.compared == Compared::kRatio;
  const auto number = [&](double value) {
    return ratio ? fmt::format("{:.4g}x", value) : Quantity(value, UnitOf(claim.metric));
  };
  ClaimWords words;
  if (claim.stated) {
    words.expected = fmt::format("{}{}", ratio ? "" : "difference ", number(*claim.stated));
    if (claim.figure) {
      words.expected += fmt::format(" (figure {}; the {} is judged)", number(*claim.figure),
                                    claim.judge_figure ? "figure" : "text");
    }
  } else {
    const char* what = ratio                                     ? ""
                       : claim.compared == Compared::kDifference ? "difference "
                                                                 : "value ";
    words.expected = fmt::format("{}{} {}", what, ComparisonSign(claim.bound.comparison),
                                 number(claim.bound.value));
  }
  if (ratio) {
    words.ours = judged.n > 0 && !judged.ours ? "a value is 0" : RatioText(judged.ours);
  } else if (!judged.ours) {
    words.ours = kNone;
  } else {
    words.ours = number(judged.ours->value);
    if (judged.ours->has_bounds())
      words.ours += fmt::format(" [{}, {}]", number(judged.ours->low), number(judged.ours->high));
  }
  words.verdict = VerdictName(judged.verdict);
  if (judged.n > 0 && judged.n < kPreliminaryBelowBlocks && judged.mode != "modelled")
    words.verdict += ", preliminary";
  return words;
}

Table ClaimTable(const PartResult& result) {
  Table table;
  table.title = result.part->title + ": claims";
  table.caption = Caption(result) +
                  "; ratios: geometric means of paired blocks, differences and values: means, each "
                  "with its t interval";
  table.columns = {"claim", "metric", "expected", "ours (95 %)", "n", "mode", "verdict"};
  std::set<std::pair<std::string, std::string>> seen;
  const auto& claims = result.part->claims;
  const bool alike = std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) {
    return !seen.emplace(claim.quote, claim.metric).second;
  });
  if (alike) table.columns.insert(table.columns.end(), {"of", "over"});
  for (const auto& judged : JudgeClaims(result)) {
    const Claim& claim = *judged.claim;
    const ClaimWords words = WordsOf(judged);
    table.rows.push_back({claim.quote, claim.metric, words.expected, words.ours,
                          std::to_string(judged.n), judged.mode, words.verdict});
    if (!alike) continue;
    table.rows.back().push_back(claim.of.dump());
    table.rows.back().push_back(claim.compared == Compared::kValue ? kNone : claim.over.dump());
  }
  return table;
}

Table PredictionTable(const Part& part, const PredictionSummary& summary) {
  Table table;
  table.title = part.title + ": predicted against live step time";
  std::vector<json> configs;
  for (const auto& cell : summary.cells) configs.push_back(cell.cell->json);
  const auto keys = KeyColumnsOf(configs);
  table.columns = {"method"};
  for (const auto& key : keys) table.columns.push_back(key.title);
  table.columns.insert(table.columns.end(), {"live step", "predicted", "error", "oversubscribed"});
  for (const bool oversubscribed : {false, true}) {
    for (const auto& cell : summary.cells) {
      if (cell.oversubscribed != oversubscribed) continue;
      const json& config = cell.cell->json;
      std::vector<std::string> row = {config.at("method")};
      for (const auto& key : keys) row.push_back(KeyText(config, key));
      row.insert(row.end(),
                 {Quantity(cell.live.value, "s"), Quantity(cell.predicted, "s"),
                  fmt::format("{:+.1f} %", 100 * cell.error()), oversubscribed ? "yes" : "no"});
      table.rows.push_back(std::move(row));
    }
  }
  const auto percent = [](const std::optional<double>& error) {
    return error ? fmt::format("{:.1f} %", 100 * *error) : std::string("no cells");
  };
  table.caption = fmt::format(
      "median |error| {} where ranks times threads fit the cores, {} where they exceed them; order "
      "of methods: {} of {} pairs with separate intervals agree",
      percent(summary.median_error), percent(summary.oversubscribed_median_error),
      summary.agreeing_pairs, summary.ordered_pairs);
  return table;
}

}  // namespace sparfuse::harness
