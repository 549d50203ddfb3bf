// Reads training logs of other programs: lines by patterns, or a table of steps by its columns.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <functional>
#include <ranges>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/files/log_text.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/imports/imports.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

namespace {

// The combined values of a log's lines.
struct LoggedTraining {
  std::vector<ImportedStep> steps;  // lines with a time, a rate or a loss, in their order
  std::vector<ImportedEvaluation> evaluations;
  std::vector<std::pair<std::string, double>> system_rates;  // the place and the value of each
  // Keys of the setting that lines state ("workers"), with the first value of each.
  std::map<std::string, GivenText> said;
  std::vector<std::string> notes;  // about removed, skipped and joined text
};

constexpr Range kSeconds{0, 1e9}, kStepNumbers{0, 1e15}, kAny{-1e300, 1e300},
    kStepsPerEpoch{1, 1e12};

using Line = std::map<std::string, GivenText>;

// Passes each line with values to `use`, in the log's order.
void LinesByPatterns(std::string_view text, const std::string& name, const ImportMap& map,
                     Problems& problems, std::vector<std::string>& notes,
                     const std::function<void(const std::string&, Line)>& use) {
  std::vector<std::string> known;
  for (const auto keys : {LineKeys(), ResultKeys(), LogKeys()}) {
    for (const ImportKey& key : keys) known.emplace_back(key.name);
  }
  std::vector<LinePattern> patterns;
  for (const GivenText& pattern : map.patterns) patterns.emplace_back(pattern, known);
  std::vector<bool> matched(patterns.size());
  const LogText log = LinesOfLog(text);
  notes.insert(notes.end(), log.notes.begin(), log.notes.end());
  for (const LogLine& each : log.lines) {
    std::string where;  // place of a line that a pattern matches
    Line line;
    const auto take = [&](const std::string& key, std::string_view value) {
      if (where.empty()) where = fmt::format("{}:{}", name, each.number);
      if (const auto [added, is_new] = line.try_emplace(key); is_new)
        added->second = {std::string(value), where + ": " + key};
    };
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      // Text that looks like a label may be a step or a time that a pattern reads.
      const bool found =
          patterns[i].Find(each.text, take) ||
          (each.text.size() != each.whole.size() && patterns[i].Find(each.whole, take));
      if (found) matched[i] = true;
    }
    if (!line.empty()) use(where, std::move(line));
  }
  // A log that ends within its first epoch has no evaluation. If no pattern matches, the log is of
  // another program.
  const bool any = std::ranges::find(matched, true) != matched.end();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (!matched[i])
      (any ? notes : problems)
          .push_back(fmt::format("{}: it matches no line of {}", patterns[i].where(), name));
  }
}

void LinesByColumns(std::string_view text, const std::string& name, const ImportMap& map,
                    Problems& problems, const std::function<void(const std::string&, Line)>& use) {
  GivenRows rows(text, name, map.delimiter);
  const std::vector<std::string>& header = rows.header();
  for (const auto& [key, column] : map.columns) {
    if (std::ranges::find(header, column.text) == header.end())
      problems.push_back(fmt::format("{} = \"{}\": {} has no such column{}", column.where,
                                     column.text, name, Suggestion(column.text, header)));
  }
  if (!problems.empty()) return;
  while (const auto row = rows.Next(problems)) {
    const auto& [where, fields] = *row;
    Line line;
    for (const auto& [key, column] : map.columns) {
      const auto at = std::ranges::find(header, column.text) - header.begin();
      const std::string_view value = Trimmed(fields[static_cast<std::size_t>(at)]);
      if (!value.empty())
        line[key] = {std::string(value), fmt::format("{}: {}", where, column.text)};
    }
    if (!line.empty()) use(where, std::move(line));
  }
}

bool IsLineKey(const std::string& key) {
  return std::ranges::find(LineKeys(), key, &ImportKey::name) != LineKeys().end();
}

// Collects the values of lines, each in its unit.
class Collector {
 public:
  Collector(const GivenValues& constants, const ImportMap& map, Problems& problems)
      : constants_(&constants), map_(&map), problems_(&problems) {}

  void Add(const std::string& where, Line line) {
    GivenValues given(where, *problems_);
    for (auto& [key, value] : line) {
      if (std::ranges::find(map_->leave_out, value.text) != map_->leave_out.end()) {
        ++left_out_;
      } else if ((key == "loss" || IsTime(key)) && IsNoNumber(value.text)) {
        ++(key == "loss" ? lost_ : untimed_);  // the step was skipped, or took no time
        given.Set(key, {"", value.where});
      } else if (IsLineKey(key)) {
        value.text = PlainNumber(value.text, *map_);
        given.Set(key, std::move(value));
      } else {
        found_.said.try_emplace(key, std::move(value));
      }
    }
    ReadStep(given);
    const auto elapsed = Elapsed(given);
    ImportedStep step;
    step.step = step_;
    step.seconds = given.Number("seconds", kSeconds);
    if (const auto milliseconds = given.Number("milliseconds", {0, 1e12}))
      step.seconds = 1e-3 * *milliseconds;
    step.rate = given.Number("rate", {0, 1e15});
    step.loss = given.Number("loss", kAny);
    for (const auto& [key, value] : {std::pair("seconds", step.seconds), {"rate", step.rate}}) {
      if (value && *value == 0) problems_->push_back(where + ": " + key + " = 0: expected more");
    }
    if (const auto rate = given.Number("system_rate", {1e-9, 1e15}))
      found_.system_rates.emplace_back(where, *rate);
    if (const auto metric = given.Number("metric", kAny)) {
      if (!step_) {
        given.Expected("step",
                       "the progress of training: a group `step`, or `epoch` with steps_per_epoch, "
                       "in this line or one before");
      }
      found_.evaluations.push_back({step_.value_or(0), *metric, elapsed, step.loss});
    }
    const bool timed = step.seconds || step.rate, has_step = given.Find("step") != nullptr;
    if (timed || has_step || (step.loss && given.Find("metric") == nullptr))
      lines_.push_back({where, step, has_step, timed});
    if (has_step && elapsed && HasClock(given)) clocked_.push_back({where, step, *elapsed});
  }

  LoggedTraining Take() {
    if (left_out_ > 0)
      found_.notes.push_back(fmt::format("leave_out: {} values left out", left_out_));
    if (lost_ > 0) found_.notes.push_back(fmt::format("{} losses are NaN or infinite", lost_));
    if (untimed_ > 0) {
      found_.notes.push_back(
          fmt::format("{} times or rates are NaN or infinite: left out", untimed_));
    }
    TakeTimesBetween();
    TakeStepsFromBehind();
    // Lines that have a step and nothing of it, which lines around them have.
    std::erase_if(lines_, [](const TrainingLine& line) {
      return !line.step.seconds && !line.step.rate && !line.step.loss;
    });
    TakeStepsOnce();
    for (const TrainingLine& line : lines_) found_.steps.push_back(line.step);
    return std::move(found_);
  }

 private:
  struct TrainingLine {
    std::string where;
    ImportedStep step;
    bool has_step = false, timed = false;  // the line itself has a step, a time
    bool replaced = false;                 // by a later line of its step
  };
  struct ClockedLine {
    std::string where;
    ImportedStep step;
    double elapsed = 0;
  };

  static bool IsTime(const std::string& key) {
    return key == "seconds" || key == "milliseconds" || key == "rate";
  }

  static bool IsNoNumber(std::string_view text) {
    std::string small;
    for (const char c : text.substr(0, 10))
      small += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::string_view word =
        std::string_view(small).substr(small.starts_with('-') || small.starts_with('+') ? 1 : 0);
    return word == "nan" || word == "inf" || word == "infinity";
  }

  static bool HasClock(const GivenValues& given) {
    return given.Find("clock_s") != nullptr || given.Find("clock_ms") != nullptr ||
           (given.Find("elapsed") != nullptr && NumberIn(given.Find("elapsed")->text));
  }

  // Computes step times from the clocks of the lines, if no line states a time of a step or an
  // evaluation. The time since the previous clock is divided among the steps in between.
  void TakeTimesBetween() {
    if (std::ranges::any_of(lines_, &TrainingLine::timed) || !found_.evaluations.empty() ||
        clocked_.size() < 2)
      return;
    lines_.clear();
    for (std::size_t i = 1; i < clocked_.size(); ++i) {
      const ClockedLine &line = clocked_[i], &before = clocked_[i - 1];
      const double steps = *line.step.step - *before.step.step;
      const double seconds = line.elapsed - before.elapsed;
      if (steps > 0 && seconds <= 0) {
        problems_->push_back(
            fmt::format("{}: {:g} s since {}, which is {:g} step(s) before: expected rising times",
                        line.where, seconds, before.where, steps));
      }
      lines_.push_back({line.where, line.step, true, true});
      if (steps > 0) lines_.back().step.seconds = seconds / steps;
    }
    found_.notes.emplace_back("times of steps are those between lines");
  }

  // Moves steps to the times before them, if each step stands after its time: the first time has no
  // step before it, and the last time has one after it.
  void TakeStepsFromBehind() {
    if (std::ranges::any_of(lines_,
                            [](const TrainingLine& line) { return line.timed && line.has_step; }))
      return;
    const auto first = std::ranges::find(lines_, true, &TrainingLine::timed);
    const auto begin = std::ranges::find(lines_, true, &TrainingLine::has_step);
    const auto last =
        std::find_if(lines_.rbegin(), lines_.rend(), std::mem_fn(&TrainingLine::timed));
    if (first == lines_.end() ||
        std::none_of(last.base(), lines_.end(), std::mem_fn(&TrainingLine::has_step)))
      return;
    if (begin < first) {
      found_.notes.emplace_back(
          "steps come before the first and after the last time: each time counts for the step "
          "before it");
    }
    if (begin < first || first->step.step) return;
    std::optional<double> step;
    for (TrainingLine& line : lines_ | std::views::reverse) {
      if (line.has_step) step = line.step.step;
      if (line.timed) line.step.step = step;
    }
    found_.notes.emplace_back("the line of each step comes after the line of its time");
  }

  // Handles repeated steps. If each step repeats equally often, the lines are of several ranks,
  // else of several runs.
  void TakeStepsOnce() {
    std::map<double, std::vector<TrainingLine*>> by_step;
    const TrainingLine *before = nullptr, *wrong = nullptr, *wrong_before = nullptr;
    for (TrainingLine& line : lines_) {
      if (!line.timed || !line.has_step) continue;
      if (before != nullptr && wrong == nullptr && *line.step.step <= *before->step.step) {
        wrong = &line;
        wrong_before = before;
      }
      before = &line;
      by_step[*line.step.step].push_back(&line);
    }
    if (wrong == nullptr || map_->steps_again == "all") return;
    const std::size_t times = by_step.begin()->second.size();
    const bool alike =
        times > 1 && std::ranges::all_of(by_step, [&](const auto& each) {
          const auto span = each.second.back() - each.second.front();
          return each.second.size() == times && static_cast<std::size_t>(span) < 4 * times;
        });
    if (map_->steps_again.empty() && !alike) {
      problems_->push_back(fmt::format(
          "{}: step {:g} after step {:g} in {}: expected rising steps of one run and one rank; "
          "steps_again = \"last\" in the map takes the last line of each step, \"all\" all lines",
          wrong->where, *wrong->step.step, *wrong_before->step.step, wrong_before->where));
      return;
    }
    for (auto& [number, lines] : by_step) {
      TrainingLine& kept = *lines.back();
      if (map_->steps_again.empty()) {
        for (const auto member : {&ImportedStep::seconds, &ImportedStep::rate, &ImportedStep::loss})
          kept.step.*member = MedianOf(lines, member);
      }
      for (TrainingLine* line : lines) line->replaced = line != &kept;
    }
    const std::size_t dropped = std::erase_if(lines_, std::mem_fn(&TrainingLine::replaced));
    found_.notes.push_back(
        map_->steps_again.empty()
            ? fmt::format("each step comes {} times, as of {} ranks: the median of each counts",
                          times, times)
            : fmt::format("steps_again: {} lines left out, since their steps come again", dropped));
  }

  static std::optional<double> MedianOf(const std::vector<TrainingLine*>& lines,
                                        std::optional<double> ImportedStep::*member) {
    std::vector<double> values;
    for (const TrainingLine* line : lines) {
      if (line->step.*member) values.push_back(*(line->step.*member));
    }
    if (values.empty()) return std::nullopt;
    return MedianEstimate(values).value;
  }

  void ReadStep(const GivenValues& given) {
    const auto within = given.Number("step", kStepNumbers);
    const auto epoch = given.Number("epoch", kStepNumbers);
    if (!epoch) {
      if (within) step_ = within;
      return;
    }
    if (!steps_per_epoch_) {
      steps_per_epoch_ = constants_->Number("steps_per_epoch", kStepsPerEpoch);
      if (const auto said = found_.said.find("steps_per_epoch");
          !steps_per_epoch_ && said != found_.said.end())
        steps_per_epoch_ = NumberIn(said->second.text);
      if (!steps_per_epoch_) {
        given.Expected("steps_per_epoch", "a number, since lines count epochs");
        steps_per_epoch_ = 1;
      }
    }
    step_ = *epoch * *steps_per_epoch_ + within.value_or(0);
  }

  std::optional<double> Elapsed(const GivenValues& given) {
    auto clock = given.Number("clock_ms", {0, 1e15});
    if (const auto seconds = given.Number("clock_s", {0, 1e12})) clock = 1e3 * *seconds;
    if (clock && !first_clock_) first_clock_ = clock;
    if (clock) elapsed_ = 1e-3 * (*clock - *first_clock_);
    if (const GivenText* text = given.Find("elapsed"); text != nullptr) {
      const auto seconds = NumberIn(text->text);
      if (seconds && *seconds > kSeconds.most) {
        given.Expected("elapsed", "seconds since training began; seconds of a clock are clock_s");
      } else if (const auto elapsed = given.Number("elapsed", kSeconds)) {
        elapsed_ = elapsed;
      }
    }
    return elapsed_;
  }

  const GivenValues* constants_;
  const ImportMap* map_;
  Problems* problems_;
  std::vector<TrainingLine> lines_;  // with a time, a rate, a step or a loss
  std::vector<ClockedLine> clocked_;
  std::size_t left_out_ = 0, lost_ = 0, untimed_ = 0;
  LoggedTraining found_;
  std::optional<double> step_, steps_per_epoch_, first_clock_, elapsed_;
};

// `given` has the constants steps_per_epoch and warmup. Text that cannot be read becomes a problem.
LoggedTraining ReadLoggedLines(std::string_view bytes, const std::string& name,
                               const ImportMap& map, const GivenValues& given, Problems& problems) {
  if (map.patterns.empty() == map.columns.empty()) {
    problems.push_back(
        fmt::format("{}: expected `patterns` in the map, for a log of lines, or `columns`, for "
                    "comma-separated steps",
                    name));
    return {};
  }
  Collector collector(given, map, problems);
  std::vector<std::string> notes;
  const std::string text = ImportedText(bytes, name, map, &notes);
  const auto add = [&](const std::string& where, Line line) {
    collector.Add(where, std::move(line));
  };
  if (map.columns.empty()) {
    LinesByPatterns(text, name, map, problems, notes, add);
  } else {
    LinesByColumns(text, name, map, problems, add);
  }
  LoggedTraining found = collector.Take();
  found.notes.insert(found.notes.begin(), notes.begin(), notes.end());
  // The first steps are warm-up. If lines do not count steps, the first lines are.
  const int warmup = given.Integer("warmup", {0, 1e9}).value_or(0);
  int timed = 0;
  for (ImportedStep& step : found.steps) {
    if (!step.seconds && !step.rate) continue;
    step.measured = step.step ? *step.step >= warmup : timed >= warmup;
    ++timed;
  }
  return found;
}

constexpr double kAlike = 0.05;  // two numbers of one quantity differ by at most this

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

  const std::vector<std::string>& notes() const noexcept { return log_.notes; }

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
  // Checks that the log and the user state the same setting.
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
                      "the number of first steps that are left out, 0 if the log begins after "
                      "them");
    }
    // "5.2 steps/s" and "0.3 s/it" are step times.
    const std::string unit = given_.Text("unit");
    const bool of_steps = ToBaseUnits(kStepSeconds, 1, unit, *workload_, {}).expected.empty();
    std::vector<double> seconds, inverse_rates;
    for (const ImportedStep& step : log_.steps) {
      if (!step.measured) continue;
      if (step.seconds && *step.seconds > 0) seconds.push_back(*step.seconds);
      if (!step.rate || !(*step.rate > 0)) continue;
      if (of_steps) {
        seconds.push_back(ToBaseUnits(kStepSeconds, *step.rate, unit, *workload_, {}).value);
      } else {
        inverse_rates.push_back(1 / *step.rate);
      }
    }
    const auto units = setting_.units_per_step();
    ImportedResult result = Result(seconds.empty() || units ? kThroughput : kStepSeconds);
    result.log = log_.steps;
    if (seconds.empty() && inverse_rates.empty()) {
      problems_.push_back(
          fmt::format("{}: all its times belong to the warm-up: expected steps after it", name_));
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

  // The rate of all workers together.
  std::optional<double> Rate(double value, const char* what) {
    const std::string per = given_.Text("per"),
                      unit = given_.NeedText("unit", "images/s, of rates");
    if (per != "worker" && per != "system") {
      given_.Expected("per", "worker or system: whether these are rates of one worker or of all");
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
            : fmt::format(", which differ by a factor of {}: is per = \"{}\" right?",
                          setting_.workers, given_.Text("per")));
  }

  // Compares the rate with the log's own sums, in the unit of its rates.
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
            fmt::format("{}: an evaluation at step {:g} after one at {:g}: expected the log of one "
                        "run",
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
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* notes) {
  LogReader reader(text, name, map, catalog);
  if (notes != nullptr) *notes = reader.notes();
  return reader.Read();
}

}  // namespace sparfuse::harness
