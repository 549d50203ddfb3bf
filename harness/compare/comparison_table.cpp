#include "harness/compare/comparison_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "harness/records/cell_config.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The verdict's name for programs.
const char* NameOf(const SideVerdict& verdict) {
  static constexpr const char* kNames[] = {"agree", "first", "second", "undecided"};
  if (!verdict.why_not.empty()) return "not comparable";
  return kNames[static_cast<std::size_t>(verdict.contrast.agreement)];
}

std::string WordsOf(const SideVerdict& verdict, const std::string& first,
                    const std::string& second) {
  const Contrast& contrast = verdict.contrast;
  if (!verdict.why_not.empty() || contrast.agreement == Agreement::kAgree) return NameOf(verdict);
  if (contrast.agreement == Agreement::kFirst) return "larger on " + first;
  if (contrast.agreement == Agreement::kSecond) return "larger on " + second;
  if (contrast.blocks_needed == 0) return "undecided: two blocks of each are the least";
  return fmt::format("undecided: {} blocks of each may tell", contrast.blocks_needed);
}

Table SideTable(const ShownComparison& shown) {
  Table table{.title = "Compared systems", .columns = {"", "hardware", "trials"}};
  for (const SystemSide& side : shown.sides)
    table.rows.push_back({side.name, side.hardware, std::to_string(side.rows.size())});
  if (shown.comparison.differences.empty()) return table;
  table.notes.push_back("differences between them are listed below");
  return table;
}

// The columns that tell the settings of a part apart.
std::vector<KeyColumn> SettingKeys(const ComparedPart& part) {
  std::vector<json> configs;
  for (const ComparedSetting& setting : part.settings) {
    json& config = configs.emplace_back(setting.config);
    for (const std::string& key : MethodKeys()) config.erase(key);
  }
  return KeyColumnsOf(configs);
}

// "digits-resnet, workers 4, link 1 Gbit/s"
std::string SettingText(const json& config, const std::vector<KeyColumn>& keys) {
  std::string text;
  for (const KeyColumn& key : keys) {
    if (!text.empty()) text += ", ";
    if (key.path != "workload") text += key.title + " ";
    text += KeyText(config, key);
  }
  return text;
}

// "b: dense moved by 31 % while block 2 of 5 was measured, by 12 % while block 4 was". "" if the
// reference of the ratios did not move.
std::string MovedText(const std::string& side, const SideValue& value,
                      const CompareRequest& request) {
  if (value.moved.empty()) return "";
  std::vector<std::string> blocks;
  for (const auto& [block, by] : value.moved)
    blocks.push_back(fmt::format("block {} by {:.0f} %", block, 100 * by));
  return fmt::format("{}: {} moved in {} of {} blocks ({})", side, request.reference,
                     value.moved.size(), value.ratios.size(), fmt::join(blocks, ", "));
}

// A sentence for each side with blocks in which the reference moved.
std::vector<std::string> ControlSummary(const ShownComparison& shown) {
  const auto& [comparison, sides, request, asked] = shown;
  std::vector<std::string> sentences;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    std::size_t flagged = 0, ratios = 0;
    for (const ComparedPart& part : comparison.parts) {
      for (const ComparedCell& cell : part.cells) {
        flagged += !cell.sides[side].moved.empty();
        ratios += !cell.sides[side].ratios.empty();
      }
    }
    if (flagged == 0) continue;
    sentences.push_back(fmt::format(
        "On {} {} moved by more than {:g} % while a block was measured: {} of {} ratios are marked",
        sides[side].name, request.reference, 100 * request.control, flagged, ratios));
  }
  return sentences;
}

Table RatioTable(const ShownComparison& shown, const ComparedPart& part) {
  const auto& [comparison, sides, request, asked] = shown;
  CellTable made(part, fmt::format("{}/{}", part.experiment, part.part));
  Table& table = made.table;
  table.caption = fmt::format(
      "ratios to {} within each block, and the first side's over the others': 95 %; absolute "
      "values are not compared",
      request.reference);
  for (const SystemSide& side : sides)
    table.columns.push_back(fmt::format("{}: vs {}", side.name, request.reference));
  for (std::size_t side = 1; side < sides.size(); ++side) {
    table.columns.push_back(fmt::format("{} / {}", sides[0].name, sides[side].name));
    table.columns.emplace_back("verdict");
  }
  for (const SystemSide& side : sides) table.columns.push_back(side.name + ": absolute");
  for (const ComparedCell& cell : part.cells) {
    std::vector<std::string> row = made.RowOf(cell);
    for (std::size_t side = 0; side < sides.size(); ++side) {
      const SideValue& value = cell.sides[side];
      std::string text = value.lacks.empty() ? RatioText(value.ratio) : kNone;
      if (const std::string moved = MovedText(sides[side].name, value, request); !moved.empty())
        text += fmt::format(" [{}]", table.NoteOf(moved));
      row.push_back(std::move(text));
    }
    for (std::size_t side = 1; side < sides.size(); ++side) {
      const SideVerdict& verdict = cell.verdicts[side - 1];
      const bool judged = verdict.why_not.empty();
      row.push_back(judged ? RatioText(verdict.contrast.ratio) : kNone);
      std::string words = WordsOf(verdict, sides[0].name, sides[side].name);
      if (!judged) words += fmt::format(" [{}]", table.NoteOf(verdict.why_not));
      if (!cell.plans.empty())
        words += fmt::format(" [{}]", table.NoteOf("plans differ: " + cell.plans));
      row.push_back(std::move(words));
    }
    for (const SideValue& value : cell.sides)
      row.push_back(value.absolute ? Quantity(value.absolute->value, cell.unit) : kNone);
    table.rows.push_back(std::move(row));
  }
  return table;
}

json RegimeJson(const Regime& regime) {
  return {{"communication", OrNull(regime.communication)},
          {"drift", OrNull(regime.drift)},
          {"links", regime.LinkWords()},
          {"ranks", regime.ranks},
          {"hosts", regime.hosts}};
}

// A compared setting, and the parts of its time on each side.
json SettingsJson(const ComparedPart& part, const std::vector<KeyColumn>& keys) {
  json settings = json::array();
  for (const ComparedSetting& setting : part.settings) {
    json regimes = json::array();
    for (const Regime& regime : setting.regimes) regimes.push_back(RegimeJson(regime));
    settings.push_back({{"experiment", part.experiment},
                        {"part", part.part},
                        {"setting", SettingText(setting.config, keys)},
                        {"mode", setting.config.value("mode", json())},
                        {"regimes", std::move(regimes)}});
  }
  return settings;
}

json CellJson(const ShownComparison& shown, const ComparedCell& cell, const std::string& setting,
              std::size_t side) {
  const auto& [comparison, sides, request, asked] = shown;
  const SideVerdict& verdict = cell.verdicts[side - 1];
  const bool judged = verdict.why_not.empty();
  return {{"experiment", cell.key.experiment},
          {"part", cell.key.part},
          {"config_hash", cell.key.config_hash},
          {"setting", setting},
          {"config", cell.config},
          {"first", sides[0].name},
          {"second", sides[side].name},
          {"unit", cell.unit},
          {"first_ratio", RatioJson(cell.sides[0].ratio)},
          {"second_ratio", RatioJson(cell.sides[side].ratio)},
          {"first_absolute", IntervalJson(cell.sides[0].absolute, cell.unit)},
          {"second_absolute", IntervalJson(cell.sides[side].absolute, cell.unit)},
          {"first_over_second", judged ? RatioJson(verdict.contrast.ratio) : json()},
          {"verdict", NameOf(verdict)},
          {"blocks_needed",
           verdict.contrast.blocks_needed > 0 ? json(verdict.contrast.blocks_needed) : json()},
          {"why_not", verdict.why_not},
          {"first_moved", ByBlockJson(cell.sides[0].moved)},
          {"second_moved", ByBlockJson(cell.sides[side].moved)},
          {"plans", cell.plans},
          {"transported", TransportedJson(cell, side)},
          {"first_forced", ForcedJson(cell, 0, asked)},
          {"second_forced", ForcedJson(cell, side, asked)}};
}

// The row of a cell and side, without nested tables.
nlohmann::ordered_json Flat(const json& cell) {
  nlohmann::ordered_json flat = {{"experiment", cell["experiment"]},
                                 {"part", cell["part"]},
                                 {"config", ConfigHash(cell["config"]).substr(0, kShortHash)}};
  for (const char* key : {"method", "workload", "workers", "sparsifier", "density"})
    flat[key] = cell["config"].value(key, json());
  for (const char* key : {"first", "second", "unit"}) flat[key] = cell[key];
  const auto within = [](const json& table, const char* key) {
    return table.is_null() ? json() : table[key];
  };
  const auto put = [&](const std::string& name, const json& interval) {
    flat[name] = within(interval, "value");
    flat[name + "_low"] = within(interval, "low");
    flat[name + "_high"] = within(interval, "high");
  };
  for (const char* key : {"first_ratio", "second_ratio", "first_over_second"}) put(key, cell[key]);
  for (const char* key : {"verdict", "blocks_needed", "why_not", "plans"}) flat[key] = cell[key];
  for (const char* key : {"first_moved", "second_moved"})
    flat[std::string(key) + "_blocks"] = cell[key].size();
  for (const char* key : {"first_absolute", "second_absolute"})
    flat[key] = within(cell[key], "value");
  put("transported", within(cell["transported"], "ratio"));
  put("residual", within(cell["transported"], "residual"));
  for (const std::string table : {"first_forced", "second_forced"}) {
    for (const char* key : {"modelled", "measured", "gain", "rest"})
      put(table + "_" + key, within(cell[table], key));
    flat[table + "_gain_mode"] = within(cell[table], "gain_mode");
  }
  return flat;
}

}  // namespace

CellTable::CellTable(const ComparedPart& part, std::string title)
    : table{.title = std::move(title), .columns = {"method"}} {
  std::vector<json> configs;
  for (const ComparedCell& cell : part.cells) configs.push_back(cell.config);
  keys = KeyColumnsOf(configs);
  for (const KeyColumn& key : keys) table.columns.push_back(key.title);
}

std::vector<std::string> CellTable::RowOf(const ComparedCell& cell) const {
  std::vector<std::string> row = {cell.config.value("method", kNone)};
  for (const KeyColumn& key : keys) row.push_back(KeyText(cell.config, key));
  return row;
}

Table DifferenceTable(const ShownComparison& shown) {
  Table table{.title = "Differences between the systems", .columns = {"recorded"}};
  for (const SystemSide& side : shown.sides) table.columns.push_back(side.name);
  table.columns.emplace_back("");
  for (const FactDifference& each : shown.comparison.differences) {
    std::vector<std::string> row = {each.name};
    for (const std::string& value : each.values) row.push_back(value.empty() ? kNone : value);
    std::string hidden = each.hidden ? "differs within one side, too" : "";
    for (const std::string& cell : each.cells)
      hidden += fmt::format(" [{}]", table.NoteOf(fmt::format("{}: {}", each.name, cell)));
    row.push_back(std::move(hidden));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table RegimeTable(const ShownComparison& shown, const ComparedPart& part) {
  const auto& [comparison, sides, request, asked] = shown;
  Table table;
  table.title = fmt::format("{}/{}: settings", part.experiment, part.part);
  table.caption = fmt::format(
      "communication that {0} exposes over the rest of its step; how far {0}'s step drifts over "
      "blocks",
      request.reference);
  const auto keys = SettingKeys(part);
  for (const auto& key : keys) table.AddColumn(key.title, 'l');
  for (const SystemSide& side : sides) {
    table.AddColumn(side.name, 'r');
    table.AddColumn("drift", 'r');
    table.AddColumn("links", 'l');
  }
  for (const ComparedSetting& setting : part.settings) {
    std::vector<std::string> row;
    for (const auto& key : keys) row.push_back(KeyText(setting.config, key));
    for (std::size_t side = 0; side < sides.size(); ++side) {
      const Regime& regime = setting.regimes[side];
      row.push_back(regime.communication ? Quantity(*regime.communication, "1") : kNone);
      std::string drift = regime.drift ? fmt::format("{:.1f} %", 100 * *regime.drift) : kNone;
      if (regime.drift > request.control) {
        drift += fmt::format(
            " [{}]", table.NoteOf(fmt::format("{} moved while the setting was measured: smaller "
                                              "differences are not the methods'",
                                              request.reference)));
      }
      row.push_back(std::move(drift));
      row.push_back(regime.LinkWords().empty() ? kNone : regime.LinkWords());
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<std::string> SummaryOf(const ShownComparison& shown) {
  const auto& [comparison, sides, request, asked] = shown;
  std::vector<std::string> sentences;
  for (std::size_t side = 1; side < sides.size(); ++side) {
    std::map<std::string, std::size_t> counts, reasons;
    std::size_t ratios = 0;
    for (const ComparedPart& part : comparison.parts) {
      for (const ComparedCell& cell : part.cells) {
        const SideVerdict& verdict = cell.verdicts[side - 1];
        ++counts[NameOf(verdict)];
        if (!verdict.why_not.empty()) ++reasons[verdict.why_not];
        ++ratios;
      }
    }
    const std::pair<const char*, std::string> words[] = {
        {"agree", fmt::format("agree within {:g} %", 100 * request.within)},
        {"first", "larger on " + sides[0].name},
        {"second", "larger on " + sides[side].name},
        {"undecided", "undecided"},
        {"not comparable", "not comparable"}};
    std::vector<std::string> said;
    for (const auto& [name, text] : words) {
      if (counts[name] > 0) said.push_back(fmt::format("{} {}", counts[name], text));
    }
    if (!reasons.empty()) {
      const auto& [why, count] =
          *std::ranges::max_element(reasons, {}, [](const auto& reason) { return reason.second; });
      said.back() += fmt::format(" ({}: {})", count, why);
    }
    sentences.push_back(
        fmt::format("{} against {}: {} ratio{} to {}: {}", sides[0].name, sides[side].name, ratios,
                    ratios == 1 ? "" : "s", request.reference,
                    said.empty() ? "none" : fmt::format("{}", fmt::join(said, ", "))));
  }
  for (std::string& sentence : ControlSummary(shown)) sentences.push_back(std::move(sentence));
  for (std::string& sentence : ModelledSummary(shown)) sentences.push_back(std::move(sentence));
  return sentences;
}

std::vector<Table> TablesOf(const ShownComparison& shown) {
  std::vector<Table> tables = {SideTable(shown)};
  for (const ComparedPart& part : shown.comparison.parts) {
    tables.push_back(RegimeTable(shown, part));
    tables.push_back(RatioTable(shown, part));
    for (Table& table : ModelledTables(shown, part)) tables.push_back(std::move(table));
  }
  if (!shown.comparison.differences.empty()) tables.push_back(DifferenceTable(shown));
  return tables;
}

json ComparisonJson(const ShownComparison& shown) {
  const auto& [comparison, sides, request, asked] = shown;
  json cells = json::array(), differences = json::array(), names = json::array();
  json settings = json::array();
  for (const ComparedPart& part : comparison.parts) {
    const std::vector<KeyColumn> keys = SettingKeys(part);
    for (json& setting : SettingsJson(part, keys)) settings.push_back(std::move(setting));
    for (const ComparedCell& cell : part.cells) {
      const std::string setting = SettingText(part.settings[cell.setting].config, keys);
      for (std::size_t side = 1; side < sides.size(); ++side)
        cells.push_back(CellJson(shown, cell, setting, side));
    }
  }
  for (const FactDifference& each : comparison.differences) {
    differences.push_back({{"name", each.name},
                           {"values", each.values},
                           {"hidden", each.hidden},
                           {"cells", each.cells}});
  }
  for (std::size_t side = 0; side < sides.size(); ++side) {
    names.push_back({{"name", sides[side].name},
                     {"hardware", sides[side].hardware},
                     {"profile", side < asked.profiles.size() ? asked.profiles[side] : ""}});
  }
  return {{"reference", request.reference},
          {"within", request.within},
          {"control", request.control},
          {"sides", names},
          {"hardware", comparison.hardware},
          {"settings", settings},
          {"cells", cells},
          {"differences", differences}};
}

std::string ComparisonCsv(const ShownComparison& shown) {
  const json all = ComparisonJson(shown);
  std::vector<nlohmann::ordered_json> rows;
  for (const json& cell : all["cells"]) rows.push_back(Flat(cell));
  return rows.empty() ? "" : CsvOf(rows.front(), rows);
}

}  // namespace sparfuse::harness
