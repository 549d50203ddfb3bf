#include "harness/report/tables/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "harness/catalog/metrics.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The value whose scale all values of a column use, so that they have one unit: the median of the
// cells.
double ScaleOfColumn(const PartResult& result, const MetricColumn& column) {
  std::vector<double> values;
  for (const CellResult& cell : result.cells) {
    std::map<int, double> blocks = cell.Values(column.metric);
    if (blocks.empty()) blocks = cell.ValuesApart(column.metric);
    if (const auto mean = MeanInterval(OfBlocks(blocks)); mean && mean->value != 0)
      values.push_back(mean->value);
  }
  return values.empty() ? 0 : Median(values);
}

std::string ValueText(const CellResult& result, const MetricColumn& column, const std::string& unit,
                      double like) {
  if (const auto interval = result.Over(column.metric)) {
    return column.interval ? IntervalText(*interval, unit, like)
                           : Quantity(interval->value, unit, like);
  }
  // This mean may be 0, which has no logarithm.
  if (const auto mean = result.Mean(column.metric)) {
    return *mean == 0 && column.uncounted_at_zero ? kNone : Quantity(*mean, unit, like);
  }
  const auto apart = MeanInterval(OfBlocks(result.ValuesApart(column.metric)));
  if (apart) return "(" + Quantity(apart->value, unit, like) + ")";
  return result.MissedTarget(column.metric) ? std::string(kTargetNotReached) : kNone;
}

std::string MetricText(const CellResult& result, const MetricColumn& column,
                       const std::string& unit, double like) {
  std::string text = ValueText(result, column, unit, like);
  if (column.share_of != nullptr) {
    const auto part = result.Mean(column.metric);
    const auto whole = result.Mean(column.share_of);
    if (part && whole && *whole > 0) text += fmt::format(" ({:.0f} %)", 100 * *part / *whole);
  }
  if (column.of_target && result.cell->config.target) {
    const std::size_t reached = result.Values(column.metric).size();
    if (reached < result.trials.size())
      text += fmt::format(" ({} of {})", reached, result.trials.size());
  }
  return text;
}

// The look of a cell's row on pages.
std::string LookOf(const CellResult& cell, const MetricColumn& first) {
  if (cell.OnlyDisturbed() && IsTimed(first.metric)) return "absent";
  if (cell.failure.empty()) return "";
  return cell.failure == "not run" || cell.failure == "stale" ? "absent" : "failed";
}

std::vector<MetricColumn> ShownColumns(const PartResult& result,
                                       std::span<const std::string> named) {
  std::vector<MetricColumn> shown = MetricColumnsOf(*result.part, named);
  std::erase_if(shown, [&](const MetricColumn& column) {
    return column.rare && std::ranges::all_of(result.cells, [&](const CellResult& cell) {
             return cell.Values(column.metric).empty();
           });
  });
  return shown;
}

// The common target of a part's cells. Nothing if they differ; then a column shows the targets.
std::optional<double> TargetOf(const Part& part) {
  const auto target = part.cells.front().config.target;
  const bool alike = std::ranges::all_of(
      part.cells, [&](const Cell& cell) { return cell.config.target == target; });
  return alike ? target : std::nullopt;
}

// Says what ratios to the reference are based on, if trials took turns; else "".
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
  const std::string whose =
      in_turn == pairs ? "compared trials took turns in one launch of each block"
                       : fmt::format("of {} compared pairs of trials {} took turns in one launch",
                                     pairs, in_turn);
  return "; " + whose + ": ratios come from their rounds, not from this table's values";
}

// The number of blocks in the first column's numbers.
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
  if (const auto target = TargetOf(*result.part)) caption += fmt::format("; target {:g}", *target);
  if (std::ranges::any_of(result.cells, [](const CellResult& cell) {
        return cell.Mean("step_uncertainty").has_value();
      })) {
    caption += "; ± of modelled steps and throughput: from the profile's errors of measurement";
  }
  if (std::ranges::any_of(result.cells, [](const CellResult& cell) {
        return !cell.trials.empty() && !cell.trials.begin()->second->launch.draws.empty();
      })) {
    caption +=
        "; intervals of cells modelled on a declared cluster: from the ranges of its inputs, "
        "without the highest and the lowest draw";
  }
  if (only_disturbed) caption += "; in brackets: disturbed trials, which do not count";
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

// The method, with a note if parts of it are written in Python and cost Python's time.
std::string MethodText(const Cell& cell, Table& table) {
  std::string kinds;
  for (const PartOfCell& part : OutsidePartsOf(cell.config)) {
    if (IsPythonPart(part.name)) kinds += (kinds.empty() ? "" : ", ") + std::string(part.kind);
  }
  const auto method = cell.json["method"].get<std::string>();
  if (kinds.empty()) return method;
  return fmt::format("{} [{}]", method, table.NoteOf("in Python: " + kinds));
}

// The origin of a number, as the import recorded it.
json SaidOf(const TrialRow& row) {
  const json& provenance = row.provenance;
  return provenance.is_object() ? provenance.value("imported", json::object()) : json::object();
}

std::string ImportedValue(const ImportedCell& cell, const std::string& metric) {
  const auto interval = cell.result.Over(metric);
  const auto average = cell.result.Average(metric);
  if (!average) return kNone;
  std::string text = Quantity(average->value, cell.any->units.at(metric));
  if (cell.any->units.at(metric) == "accuracy" || cell.any->units.at(metric) == "f1")
    text = fmt::format("{:.4g} {}", average->value, cell.any->units.at(metric));
  if (interval && interval->has_bounds())
    return text + SpreadText(*interval, cell.any->units.at(metric));
  const json said = SaidOf(*cell.any);
  if (metric != cell.any->config.value("metric", std::string())) return text;
  if (const double error = said.value("standard_error", 0.0); error > 0)
    text += fmt::format(" ± {:.1f} %", 100 * 1.96 * error);
  if (const double deviation = said.value("deviation", 0.0); deviation > 0)
    text += fmt::format(", ± {:.1f} % as stated", 100 * deviation);
  return text;
}

// The time of a step, or the time to the target.
std::string TimeText(const ImportedCell& cell) {
  if (cell.any->metrics.contains("seconds_to_target"))
    return ImportedValue(cell, "seconds_to_target") + " to target";
  return cell.any->metrics.contains("step_seconds")
             ? ImportedValue(cell, "step_seconds") + " a step"
             : kNone;
}

std::string SampleText(const ImportedCell& cell) {
  const std::size_t runs = cell.result.trials.size();
  const std::size_t steps = SaidOf(*cell.any).value("steps", std::size_t{0});
  if (runs > 1) return fmt::format("{} runs", runs);
  return steps > 0 ? fmt::format("{} steps", steps) : "1";
}

}  // namespace

Table ResultTable(const PartResult& result, const Catalog& catalog,
                  std::span<const std::string> named) {
  const Part& part = *result.part;
  Table table{.title = part.title, .caption = Caption(result)};
  const auto keys = KeyColumnsOf(part);
  const auto metrics = ShownColumns(result, named);
  table.AddColumn("method", 'l');
  for (const auto& key : keys) table.AddColumn(key.title, 'l');
  for (const auto& metric : metrics) {
    table.AddColumn(metric.title, 'r');
    if (metric.ratio != nullptr && !part.reference.empty())
      table.AddColumn(fmt::format("{} {} (95 %)", metric.ratio, part.reference), 'r');
  }
  table.AddColumn("n", 'r');
  std::map<std::string_view, double> scales;
  for (const auto& metric : metrics) scales[metric.metric] = ScaleOfColumn(result, metric);
  for (std::size_t i = 0; i < result.cells.size(); ++i) {
    const auto& cell = result.cells[i];
    std::vector<std::string> row = {MethodText(*cell.cell, table)};
    for (const auto& key : keys) row.push_back(KeyText(cell.cell->json, key));
    for (const auto& metric : metrics) {
      const bool first = &metric == &metrics.front();
      const std::string unit = UnitOf(metric.metric, cell, catalog);
      const bool apart = first && cell.OnlyDisturbed() && IsTimed(metric.metric);
      row.push_back(first && !cell.failure.empty()
                        ? cell.failure
                        : (apart ? "disturbed " : "") +
                              MetricText(cell, metric, unit, scales[metric.metric]));
      if (metric.ratio == nullptr || part.reference.empty()) continue;
      const auto reference = result.ReferenceOf(i);
      row.push_back(reference ? RatioText(RatioOf(cell, result.cells[*reference], metric.metric))
                              : kNone);
    }
    const std::size_t blocks = BlocksOf(cell, part);
    row.push_back(cell.cell->config.modelled() ? std::to_string(blocks) : table.BlocksText(blocks));
    table.AddRow(std::move(row), LookOf(cell, metrics.front()));
  }
  for (const auto& excluded : part.excluded) {
    std::vector<std::string> row = {excluded.cell.value("method", kNone)};
    for (const auto& key : keys) row.push_back(KeyText(excluded.cell, key));
    row.push_back(fmt::format("{} [{}]", kNone, table.NoteOf(excluded.reason)));
    row.resize(table.columns.size(), kNone);
    table.AddRow(std::move(row), "absent");
  }
  return table;
}

const char* ComparisonSign(Comparison comparison) {
  static constexpr const char* kSigns[] = {"<", "<=", "=", ">=", ">"};
  return kSigns[static_cast<std::size_t>(comparison)];
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
  Table table{
      .title = result.part->title + ": claims",
      .caption = Caption(result) +
                 "; ratios: geometric means of paired blocks, differences and values: means, each "
                 "with its t interval",
      .columns = {"claim", "metric", "expected", "ours (95 %)", "n", "mode", "verdict"},
      .alignment = "lllrrll"};
  std::set<std::pair<std::string, std::string>> seen;
  const auto& claims = result.part->claims;
  const bool alike = std::ranges::any_of(
      claims, [&](const Claim& claim) { return !seen.emplace(claim.quote, claim.metric).second; });
  for (const char* cell : {"of", "over"}) {
    if (alike) table.AddColumn(cell, 'l');
  }
  for (const auto& judged : JudgeClaims(result)) {
    const Claim& claim = *judged.claim;
    const ClaimWords words = WordsOf(judged);
    table.rows.push_back(
        {claim.quote, claim.metric, words.expected, words.ours,
         judged.mode == "modelled" ? std::to_string(judged.n) : table.BlocksText(judged.n),
         judged.mode, words.verdict});
    if (!alike) continue;
    table.rows.back().push_back(claim.of.dump());
    table.rows.back().push_back(claim.compared == Compared::kValue ? kNone : claim.over.dump());
  }
  return table;
}

Table PredictionTable(const Part& part, const PredictionSummary& summary) {
  Table table{.title = part.title + ": predicted against live step time"};
  std::vector<json> configs;
  for (const auto& cell : summary.cells) configs.push_back(cell.cell->json);
  const auto keys = KeyColumnsOf(configs);
  table.AddColumn("method", 'l');
  for (const auto& key : keys) table.AddColumn(key.title, 'l');
  for (const char* heading :
       {"live step", "predicted", "error", "the longer of computation and wire", "added up"}) {
    table.AddColumn(heading, 'r');
  }
  for (const char* heading : {"within interval", "oversubscribed"}) table.AddColumn(heading, 'l');
  table.AddColumn("n", 'r');
  std::vector<double> steps;
  for (const auto& cell : summary.cells) steps.push_back(cell.live.value);
  const double like = steps.empty() ? 0 : Median(steps);
  const auto yes = [](bool is) { return is ? "yes" : "no"; };
  const auto off = [](const PredictedCell& cell, std::optional<double> seconds) {
    return seconds ? ChangeText(*seconds / cell.live.value - 1) : std::string(kNone);
  };
  std::map<bool, std::size_t> counts;
  for (const bool oversubscribed : {false, true}) {
    for (const auto& cell : summary.cells) {
      if (cell.oversubscribed != oversubscribed) continue;
      ++counts[oversubscribed];
      const json& config = cell.cell->json;
      std::vector<std::string> row = {config.at("method")};
      for (const auto& key : keys) row.push_back(KeyText(config, key));
      row.insert(row.end(),
                 {IntervalText(cell.live, "s", like), Quantity(cell.predicted, "s", like),
                  ChangeText(cell.error()), off(cell, cell.longest), off(cell, cell.sum),
                  cell.live.has_bounds() ? yes(cell.within_interval()) : kNone, yes(oversubscribed),
                  table.BlocksText(cell.live.n)});
      table.rows.push_back(std::move(row));
    }
  }
  const auto percent = [&](const std::optional<double>& error, bool oversubscribed) {
    if (!error) return std::string("no cells");
    return fmt::format("{:.1f} % (n = {})", 100 * *error, counts[oversubscribed]);
  };
  table.caption = fmt::format(
      "median |error| {} if ranks times threads fit the cores, against the {:.0f} % that the model "
      "may have; {} if they exceed them; order of methods: {} of {} pairs with separate intervals "
      "agree",
      percent(summary.median_error, false), 100 * kMayBeOff,
      percent(summary.oversubscribed_median_error, true), summary.agreeing_pairs,
      summary.ordered_pairs);
  if (summary.median_error && summary.longest_median_error && summary.sum_median_error) {
    const double nearer = std::min(*summary.longest_median_error, *summary.sum_median_error);
    table.notes.push_back(fmt::format(
        "Two formulas take the same computation and bytes on links: the longer of both has a "
        "median |error| of {:.1f} %, their sum of {:.1f} %, if ranks times threads fit the cores. "
        "Beside the nearer one, the model has {}.",
        100 * *summary.longest_median_error, 100 * *summary.sum_median_error,
        *summary.median_error < nearer ? "skill" : "no skill"));
  }
  return table;
}

std::string DoubtOf(const ImportedCell& cell) {
  std::string doubt = SaidOf(*cell.any).value("doubt", std::string());
  for (const TrialRow* other : cell.contradicting) {
    const auto& [metric, value] = *other->metrics.begin();
    doubt += fmt::format("{}another import, {}, has {} for it", doubt.empty() ? "" : "; ",
                         other->trial_id, Quantity(value, other->units.at(metric)));
  }
  return doubt;
}

Table ImportedTable(std::string title, std::span<const ImportedCell> cells) {
  Table table{.title = std::move(title),
              .caption = "imported: results of others, compared with nothing",
              .columns = {"system", "method", "workload", "workers", "density", "batch", "value",
                          "time", "n", "source"}};
  for (const ImportedCell& cell : cells) {
    const TrialRow& row = *cell.any;
    const json& config = row.config;
    const auto key = [&](const char* name) { return KeyText(config, {name, name}); };
    const std::string metric = config.value("metric", std::string());
    std::vector<std::string> words = {row.part,
                                      row.method,
                                      WorkloadLabel(row.workload),
                                      std::to_string(row.workers),
                                      key("density"),
                                      key("batch_per_worker"),
                                      ImportedValue(cell, metric),
                                      TimeText(cell),
                                      SampleText(cell),
                                      row.system.value("source", std::string())};
    if (const std::string doubt = DoubtOf(cell); !doubt.empty())
      words[6] += fmt::format(" [{}]", table.NoteOf(doubt));
    table.rows.push_back(std::move(words));
  }
  return table;
}

json ImportedJson(std::span<const ImportedCell> cells) {
  json results = json::array();
  for (const ImportedCell& cell : cells) {
    const TrialRow& row = *cell.any;
    json result = json::object();
    for (const char* key : {"method", "workers", "density", "sparsifier", "batch_per_worker",
                            "network_gbps", "target", "metric"})
      result[key] = row.config.value(key, json());
    result["workload"] = row.workload;
    result["system"] = row.part;
    result["source"] = row.system.value("source", json());
    result["stated"] = SaidOf(row).value("stated", json());
    result["doubt"] = DoubtOf(cell);
    result["n"] = cell.result.trials.size();
    result["metrics"] = json::object();
    for (const auto& [name, value] : row.metrics) {
      json interval = IntervalJson(cell.result.Average(std::string(name)));
      interval["unit"] = row.units.at(name);
      result["metrics"][std::string(name)] = std::move(interval);
    }
    result["trials"] = json::array();
    for (const auto& [block, trial] : cell.result.trials)
      result["trials"].push_back(
          {{"id", trial->trial_id}, {"block", block}, {"directory", trial->directory}});
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace sparfuse::harness
