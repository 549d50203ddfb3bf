#include "harness/imports/import_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "harness/imports/logged_lines.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kAlike = 0.05;  // two numbers of one thing are as near as this

bool Differ(double one, double other) { return std::abs(one / other - 1) > kAlike; }

class LogReader {
 public:
  LogReader(std::string_view text, const std::string& name, const ImportMap& map,
            const Catalog& catalog)
      : name_(name), given_(name, problems_) {
    for (const auto& [key, value] : map.values) given_.Set(key, value);
    log_ = ReadLoggedLines(text, name, map, given_, problems_);
    for (const auto& [key, value] : log_.said) TakeSaid(key, value);
    if (auto setting = SettingOf(given_, map, catalog, problems_)) setting_ = *setting;
  }

  std::vector<ImportedResult> Read() {
    std::vector<ImportedResult> results;
    ThrowProblems(problems_);
    workload_ = &workloads::FindWorkload(setting_.workload);
    const bool timed = std::ranges::any_of(
        log_.steps, [](const ImportedStep& step) { return step.seconds || step.rate; });
    if (timed) results.push_back(Timed());
    if (!log_.evaluations.empty()) results.push_back(Evaluated());
    if (results.empty() && problems_.empty()) {
      problems_.push_back(fmt::format(
          "{}: no line has a time, a rate or an evaluation: expected seconds, milliseconds, rate "
          "or metric among the groups or columns",
          name_));
    }
    ThrowProblems(problems_);
    for (const ImportedResult& result : results) CheckStorable(result, problems_);
    ThrowProblems(problems_);
    return results;
  }

 private:
  // What the log itself says of its setting, and what the user said, must agree.
  void TakeSaid(const std::string& key, const GivenText& said) {
    const GivenText* given = given_.Find(key);
    if (given == nullptr) {
      given_.Set(key, said);
      return;
    }
    const auto one = NumberIn(given->text), other = NumberIn(said.text);
    if (one && other ? *one == *other : given->text == said.text) return;
    problems_.push_back(fmt::format("{} = \"{}\", and {} = \"{}\": expected one of the two",
                                    given->where, given->text, said.where, said.text));
  }

  ImportedResult Result(std::string_view metric) const {
    ImportedResult result;
    result.where = name_;
    result.setting = setting_;
    result.metric = metric;
    return result;
  }

  ImportedResult Timed() {
    if (given_.Find("warmup") == nullptr) {
      given_.Expected("warmup",
                      "how many first steps are left out, 0 where the log begins behind "
                      "them");
    }
    std::vector<double> seconds, inverse_rates;
    for (const ImportedStep& step : log_.steps) {
      if (!step.measured) continue;
      if (step.seconds && *step.seconds > 0) seconds.push_back(*step.seconds);
      if (step.rate && *step.rate > 0) inverse_rates.push_back(1 / *step.rate);
    }
    const auto units = setting_.units_per_step();
    ImportedResult result = Result(seconds.empty() || units ? kThroughput : kStepSeconds);
    result.log = log_.steps;
    if (seconds.empty() && inverse_rates.empty()) {
      problems_.push_back(
          fmt::format("{}: all its times are of warm-up: expected steps behind it", name_));
      return result;
    }
    const auto& values = seconds.empty() ? inverse_rates : seconds;
    const Estimate median = MedianEstimate(values);
    result.steps = values.size();
    result.standard_error = median.relative_error();
    const auto rate = inverse_rates.empty() ? std::nullopt
                                            : Rate(1 / MedianEstimate(inverse_rates).value,
                                                   "the median of its rates");
    if (seconds.empty()) {
      if (rate) result.value = *rate;
      result.unit = workload_->unit + "/s";
      result.stated = fmt::format("{:.6g} {}, median of {} lines{}", 1 / median.value,
                                  given_.Text("unit"), values.size(), OfWorker());
    } else {
      result.value = units ? *units / median.value : median.value;
      result.unit = units ? workload_->unit + "/s" : "s";
      result.stated =
          fmt::format("{:.6g} s a step, median of {} lines", median.value, values.size());
      if (rate && units && Differ(*rate, result.value))
        result.doubts.push_back(TwoRates(*rate, result.value, "workers, batch and step time make"));
    }
    HoldToSystemRates(rate, result);
    return result;
  }

  std::string OfWorker() const { return given_.Text("per") == "worker" ? ", of a worker" : ""; }

  // Of all workers.
  std::optional<double> Rate(double value, const char* what) {
    const std::string per = given_.Text("per"),
                      unit = given_.NeedText("unit", "images/s, of rates");
    if (per != "worker" && per != "system") {
      given_.Expected("per", "worker or system: whose rates these are, of one worker or of all");
      return std::nullopt;
    }
    if (unit.empty()) return std::nullopt;
    const auto given_units = given_.Find("units_per_sample");
    const CountedBy by{setting_.workers, per == "worker",
                       given_units == nullptr ? 0 : setting_.units_per_sample};
    const InBaseUnits converted = ToBaseUnits(kThroughput, value, unit, *workload_, by);
    if (converted.expected.empty()) return converted.value;
    problems_.push_back(fmt::format("{}: {}, {:.6g} \"{}\": expected {}", name_, what, value, unit,
                                    converted.expected));
    return std::nullopt;
  }

  std::string TwoRates(double rate, double other, const char* how) const {
    return fmt::format(
        "its rates make {:.4g} {}/s of all workers, {} {:.4g}{}", rate, workload_->unit, how, other,
        Differ(rate / other, setting_.workers) && Differ(other / rate, setting_.workers)
            ? ""
            : fmt::format(", {} times apart: is per = \"{}\" right?", setting_.workers,
                          given_.Text("per")));
  }

  // The log's own sums, in the unit of its rates.
  void HoldToSystemRates(const std::optional<double>& rate, ImportedResult& result) const {
    if (!rate || log_.system_rates.empty()) return;
    const CountedBy by{1, false,
                       given_.Find("units_per_sample") == nullptr ? 0 : setting_.units_per_sample};
    for (const auto& [where, sum] : log_.system_rates) {
      const double said = ToBaseUnits(kThroughput, sum, given_.Text("unit"), *workload_, by).value;
      if (Differ(*rate, said)) {
        result.doubts.push_back(TwoRates(
            *rate, said,
            fmt::format("and {} says", std::filesystem::path(where).filename().string()).c_str()));
        return;
      }
    }
  }

  ImportedResult Evaluated() {
    ImportedResult result = Result(kFinalMetric);
    result.target = given_.Number("target", {-1e300, 1e300});
    const std::string unit = given_.NeedText("metric_unit", "1, % or perplexity");
    for (ImportedEvaluation evaluation : log_.evaluations) {
      const InBaseUnits converted =
          ToBaseUnits(kFinalMetric, evaluation.metric, unit, *workload_, {});
      if (!converted.expected.empty()) {
        problems_.push_back(fmt::format("{}: metric = {:g}, metric_unit \"{}\": expected {}", name_,
                                        evaluation.metric, unit, converted.expected));
        return result;
      }
      evaluation.metric = converted.value;
      result.unit = converted.unit;
      if (!result.curve.empty() && evaluation.step < result.curve.back().step) {
        problems_.push_back(
            fmt::format("{}: an evaluation at step {:g} behind one at {:g}: "
                        "expected the log of one run",
                        name_, evaluation.step, result.curve.back().step));
        return result;
      }
      result.curve.push_back(evaluation);
    }
    result.value = result.curve.back().metric;
    result.stated =
        fmt::format("{:.6g}{}, the last of {} evaluations", log_.evaluations.back().metric,
                    unit == "1"   ? ""
                    : unit == "%" ? " %"
                                  : " " + unit,
                    result.curve.size());
    return result;
  }

  const std::string& name_;
  Problems problems_;
  GivenValues given_;
  LoggedTraining log_;
  ImportedSetting setting_;
  const workloads::WorkloadDescriptor* workload_ = nullptr;
};

}  // namespace

std::vector<ImportedResult> ReadTrainingLog(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog) {
  return LogReader(text, name, map, catalog).Read();
}

}  // namespace sparfuse::harness
