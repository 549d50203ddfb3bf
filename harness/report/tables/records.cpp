
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/report/results.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Uses words for programs: "seconds" for "s".
std::string UnitWord(const std::string& unit) {
  return unit == "s" ? "seconds" : unit == "B" ? "bytes" : unit == "1" ? "" : unit;
}

class Recorder {
 public:
  Recorder(const PartResult& result, const Catalog& catalog)
      : result_(result), catalog_(catalog), keys_(KeyColumnsOf(*result.part)) {}

  void AddResults(std::vector<ResultRecord>& records) const {
    for (std::size_t i = 0; i < result_.cells.size(); ++i) {
      const CellResult& cell = result_.cells[i];
      for (const MetricColumn& column : MetricColumnsOf(*result_.part)) {
        ResultRecord record = Record("result", *cell.cell, column.metric);
        record.unit = UnitWord(UnitOf(column.metric, cell, catalog_));
        record.value = cell.Over(column.metric);
        if (const auto mean = cell.Mean(column.metric); mean && !record.value) {
          record.value = Interval{*mean, *mean, *mean, 1};  // 0 has no logarithm
        }
        record.n = cell.Values(column.metric).size();
        const bool first = &column == MetricColumnsOf(*result_.part).data();
        if (first) record.note = cell.failure;
        if (first && !cell.ValuesApart(column.metric).empty()) {
          record.note =
              fmt::format("{} of {} blocks disturbed", cell.disturbed.size(), cell.trials.size());
        }
        const bool missed = cell.MissedTarget(column.metric);
        if (missed) record.note = kTargetNotReached;
        if (first || missed || record.value) records.push_back(record);
        if (column.ratio != nullptr) AddRatio(i, column.metric, records);
      }
    }
    for (const ExcludedCell& excluded : result_.part->excluded) {
      ResultRecord record;
      record.what = "excluded";
      record.part = result_.part->id;
      record.keys = KeysOf(excluded.cell);
      record.note = excluded.reason;
      records.push_back(std::move(record));
    }
  }

  void AddImported(std::vector<ResultRecord>& records) const {
    for (const ImportedCell& imported : result_.imported) {
      const TrialRow& any = *imported.any;
      for (const auto& [metric, value] : any.metrics) {
        ResultRecord record;
        record.what = "imported";
        record.part = result_.part->id;
        record.keys = KeysOf(any.config);
        record.metric = metric;
        record.unit = UnitWord(std::string(any.units.at(metric)));
        record.value = imported.result.Over(record.metric);
        record.n = imported.result.trials.size();
        record.mode = any.mode;
        record.hardware = HardwareLine(any);
        record.note = DoubtOf(imported);
        records.push_back(std::move(record));
      }
    }
  }

  void AddClaims(std::vector<ResultRecord>& records) const {
    for (const ClaimResult& judged : JudgeClaims(result_)) {
      const Claim& claim = *judged.claim;
      const bool ratio = claim.compared == Compared::kRatio;
      const char* what = ratio                                     ? "claimed ratio"
                         : claim.compared == Compared::kDifference ? "claimed difference"
                                                                   : "claimed value";
      ResultRecord record = Record(what, result_.part->cells[claim.of_cell], claim.metric);
      if (ratio) record.unit = "";
      if (claim.compared != Compared::kValue) record.over = claim.over.dump();
      record.value = judged.ours;
      record.n = judged.n;
      record.mode = judged.mode;
      record.quote = claim.quote;
      record.verdict = VerdictName(judged.verdict);
      record.relation = claim.stated ? "=" : ComparisonSign(claim.bound.comparison);
      record.expected = claim.stated ? claim.judged() : claim.bound.value;
      if (ratio && judged.n > 0 && !judged.ours) record.note = "a value is 0";
      records.push_back(std::move(record));
    }
  }

  void AddPredictions(const PartResult& twins, std::vector<ResultRecord>& records) const {
    for (const PredictedCell& cell : ComparePrediction(result_, twins).cells) {
      ResultRecord record = Record("prediction", *cell.cell, "step_seconds");
      record.mode = "modelled";
      record.n = 1;
      record.value = Interval{cell.predicted, cell.predicted, cell.predicted, 1};
      if (cell.oversubscribed) record.note = "oversubscribed";
      records.push_back(record);
      record.what = "prediction error";
      record.unit = "";
      record.value = Interval{cell.error(), cell.error(), cell.error(), 1};
      records.push_back(std::move(record));
    }
  }

 private:
  void AddRatio(std::size_t i, const char* metric, std::vector<ResultRecord>& records) const {
    const auto reference = result_.ReferenceOf(i);
    if (!reference) return;
    const auto ratio = RatioOf(result_.cells[i], result_.cells[*reference], metric);
    if (!ratio) return;
    ResultRecord record = Record("ratio", *result_.cells[i].cell, metric);
    record.unit = "";
    record.over = result_.part->reference;
    record.value = ratio;
    record.n = ratio->n;
    records.push_back(std::move(record));
  }

  ResultRecord Record(const char* what, const Cell& cell, const std::string& metric) const {
    ResultRecord record;
    record.what = what;
    record.part = result_.part->id;
    record.hardware = fmt::format("{}", fmt::join(result_.hardware, "; "));
    record.keys = KeysOf(cell.json);
    record.metric = metric;
    record.unit = UnitWord(UnitOf(metric, cell.json, catalog_));
    record.mode = cell.json["mode"];
    return record;
  }

  ordered_json KeysOf(const json& config) const {
    ordered_json keys = {{"method", config.value("method", json())}};
    for (const KeyColumn& column : keys_) {
      if (column.path != "mode") keys[column.path] = KeyValue(config, column);
    }
    return keys;
  }

  const PartResult& result_;
  const Catalog& catalog_;
  std::vector<KeyColumn> keys_;
};

ordered_json Flat(const ResultRecord& record) {
  const auto text = [](const std::string& value) {
    return value.empty() ? ordered_json() : ordered_json(value);
  };
  const bool bounds = record.value && record.value->has_bounds();
  ordered_json flat = {{"what", record.what}, {"part", record.part}};
  flat.update(record.keys);
  flat["metric"] = text(record.metric);
  flat["unit"] = record.unit;
  flat["over"] = text(record.over);
  flat["value"] = record.value ? ordered_json(record.value->value) : ordered_json();
  flat["low"] = bounds ? ordered_json(record.value->low) : ordered_json();
  flat["high"] = bounds ? ordered_json(record.value->high) : ordered_json();
  flat["n"] = record.n;
  flat["mode"] = text(record.mode);
  flat["relation"] = text(record.relation);
  flat["expected"] = record.expected ? ordered_json(*record.expected) : ordered_json();
  flat["verdict"] = text(record.verdict);
  flat["quote"] = text(record.quote);
  flat["hardware"] = text(record.hardware);
  flat["note"] = text(record.note);
  return flat;
}

}  // namespace

std::vector<ResultRecord> RecordsOf(const std::vector<Part>& parts,
                                    const std::vector<PartResult>& results,
                                    const Catalog& catalog) {
  std::vector<ResultRecord> records;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Recorder recorder(results[i], catalog);
    recorder.AddResults(records);
    recorder.AddImported(records);
    recorder.AddClaims(records);
    if (HasTwins(parts, i)) {
      recorder.AddPredictions(results[i + 1], records);
    }
  }
  return records;
}

std::string RecordsCsv(const std::vector<ResultRecord>& records) {
  ordered_json empty = {{"what", nullptr}, {"part", nullptr}};
  for (const ResultRecord& record : records) {
    for (const auto& [key, value] : record.keys.items()) empty[key] = nullptr;
  }
  const ordered_json others = Flat({});
  for (const auto& [key, value] : others.items()) empty[key] = nullptr;
  std::vector<ordered_json> rows;
  for (const ResultRecord& record : records) {
    rows.push_back(empty);
    rows.back().update(Flat(record));
  }
  return CsvOf(empty, rows);
}

json RecordsJson(const std::vector<ResultRecord>& records) {
  json list = json::array();
  for (const ResultRecord& record : records) list.push_back(json(Flat(record)));
  return list;
}

}  // namespace sparfuse::harness
