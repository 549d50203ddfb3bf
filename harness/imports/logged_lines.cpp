#include "harness/imports/logged_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/base/options.hpp"
#include "harness/imports/given_rows.hpp"
#include "harness/imports/line_pattern.hpp"

namespace sparfuse::harness {
namespace {

constexpr Range kSeconds{0, 1e9}, kSteps{0, 1e15}, kAny{-1e300, 1e300}, kStepsPerEpoch{1, 1e12};

using Line = std::map<std::string, GivenText>;

// Hands each line with values, in its order, to `use`.
void LinesByPatterns(std::string_view text, const std::string& name, const ImportMap& map,
                     Problems& problems, const std::function<void(const std::string&, Line)>& use) {
  std::vector<std::string> known;
  for (const auto keys : {LineKeys(), ResultKeys(), LogKeys()}) {
    for (const ImportKey& key : keys) known.emplace_back(key.name);
  }
  std::vector<LinePattern> patterns;
  for (const GivenText& pattern : map.patterns) patterns.emplace_back(pattern, known);
  std::vector<bool> matched(patterns.size());
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string where = fmt::format("{}:{}", name, number);
    Line line;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      for (auto& [key, value] : patterns[i].Match(Trimmed(text.substr(0, end)))) {
        matched[i] = true;
        line.try_emplace(key, GivenText{std::move(value), fmt::format("{}: {}", where, key)});
      }
    }
    if (!line.empty()) use(where, std::move(line));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (!matched[i])
      problems.push_back(fmt::format("{}: it matches no line of {}", patterns[i].where(), name));
  }
}

void LinesByColumns(std::string_view text, const std::string& name, const ImportMap& map,
                    Problems& problems, const std::function<void(const std::string&, Line)>& use) {
  GivenRows rows(text, name);
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

// Puts the values of lines together, each in its unit.
class Collector {
 public:
  Collector(const GivenValues& constants, Problems& problems)
      : constants_(&constants), problems_(&problems) {}

  void Add(const std::string& where, Line line) {
    GivenValues given(where, *problems_);
    for (auto& [key, value] : line) {
      if (IsLineKey(key)) {
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
                       "how far training was: a group `step`, or `epoch` with "
                       "steps_per_epoch, in this line or one before");
      }
      found_.evaluations.push_back({step_.value_or(0), *metric, elapsed, step.loss});
    }
    const bool timed = step.seconds || step.rate;
    if (timed || (step.loss && given.Find("metric") == nullptr)) found_.steps.push_back(step);
  }

  LoggedTraining Take() { return std::move(found_); }

 private:
  void ReadStep(const GivenValues& given) {
    const auto within = given.Number("step", kSteps);
    const auto epoch = given.Number("epoch", kSteps);
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
    const auto clock = given.Number("clock_ms", {0, 1e15});
    if (clock && !first_clock_) first_clock_ = clock;
    if (clock) elapsed_ = 1e-3 * (*clock - *first_clock_);
    if (const auto elapsed = given.Number("elapsed", kSeconds)) elapsed_ = elapsed;
    return elapsed_;
  }

  const GivenValues* constants_;
  Problems* problems_;
  LoggedTraining found_;
  std::optional<double> step_, steps_per_epoch_, first_clock_, elapsed_;
};

}  // namespace

LoggedTraining ReadLoggedLines(std::string_view text, const std::string& name, const ImportMap& map,
                               const GivenValues& given, Problems& problems) {
  if (map.patterns.empty() == map.columns.empty()) {
    problems.push_back(
        fmt::format("{}: expected `patterns` in the map, of a log of lines, or "
                    "`columns`, of comma-separated steps",
                    name));
    return {};
  }
  Collector collector(given, problems);
  const auto add = [&](const std::string& where, Line line) {
    collector.Add(where, std::move(line));
  };
  if (map.columns.empty()) {
    LinesByPatterns(text, name, map, problems, add);
  } else {
    LinesByColumns(text, name, map, problems, add);
  }
  LoggedTraining found = collector.Take();
  // The first steps warm up; of lines that do not count steps, the first lines.
  const int warmup = given.Integer("warmup", {0, 1e9}).value_or(0);
  int timed = 0;
  for (ImportedStep& step : found.steps) {
    if (!step.seconds && !step.rate) continue;
    step.measured = step.step ? *step.step >= warmup : timed >= warmup;
    ++timed;
  }
  return found;
}

}  // namespace sparfuse::harness
