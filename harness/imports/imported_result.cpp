#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "harness/catalog/model_table.hpp"
#include "harness/files/log_text.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/imports/imports.hpp"

namespace sparfuse::harness {
namespace {

enum class Counted { kImages, kTokens, kSamples, kSteps };

const std::map<std::string_view, Counted>& CountedNames() {
  static const std::map<std::string_view, Counted> kNames = {
      {"image", Counted::kImages},      {"images", Counted::kImages},
      {"img", Counted::kImages},        {"imgs", Counted::kImages},
      {"token", Counted::kTokens},      {"tokens", Counted::kTokens},
      {"tok", Counted::kTokens},        {"sample", Counted::kSamples},
      {"samples", Counted::kSamples},   {"example", Counted::kSamples},
      {"examples", Counted::kSamples},  {"sequence", Counted::kSamples},
      {"sequences", Counted::kSamples}, {"seq", Counted::kSamples},
      {"seqs", Counted::kSamples},      {"it", Counted::kSteps},
      {"iter", Counted::kSteps},        {"iters", Counted::kSteps},
      {"iteration", Counted::kSteps},   {"iterations", Counted::kSteps},
      {"step", Counted::kSteps},        {"steps", Counted::kSteps}};
  return kNames;
}

const std::map<std::string_view, double>& TimeNames() {
  static const std::map<std::string_view, double> kNames = {
      {"s", 1},     {"sec", 1},     {"second", 1},   {"seconds", 1}, {"ms", 1e-3},
      {"us", 1e-6}, {"µs", 1e-6},   {"min", 60},     {"minute", 60}, {"minutes", 60},
      {"h", 3600},  {"hour", 3600}, {"hours", 3600}, {"day", 86400}, {"days", 86400}};
  return kNames;
}

std::string Normal(std::string_view unit) {
  std::string normal;
  for (const char c : unit) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0)
      normal += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return normal;
}

template <class Names>
auto Find(const Names& names, std::string_view name) {
  const auto found = names.find(name);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

// Reads "img/sec" as images a second; nothing for a unit that is no rate.
std::optional<Counted> CountedASecond(const std::string& unit) {
  const std::size_t slash = unit.find('/');
  if (slash == std::string::npos) return std::nullopt;
  if (Find(TimeNames(), std::string_view(unit).substr(slash + 1)) != 1.0) return std::nullopt;
  return Find(CountedNames(), std::string_view(unit).substr(0, slash));
}

// The factor from "ms" or "ms/iteration" to seconds.
std::optional<double> SecondsOf(const std::string& unit) {
  const std::size_t slash = unit.find('/');
  if (slash != std::string::npos &&
      Find(CountedNames(), std::string_view(unit).substr(slash + 1)) != Counted::kSteps)
    return std::nullopt;
  return Find(TimeNames(), std::string_view(unit).substr(0, slash));
}

InBaseUnits Throughput(double value, const std::string& unit,
                       const workloads::WorkloadDescriptor& workload, const CountedBy& by) {
  const auto counted = CountedASecond(unit);
  InBaseUnits converted{value * (by.of_one_worker ? by.workers : 1), workload.unit + "/s", ""};
  if (counted == Counted::kSamples) {
    if (workload.units_per_sample != 1 && by.units_per_sample == 0) {
      converted.expected = fmt::format("{}, or units_per_sample, how many {} a sample has",
                                       converted.unit, workload.unit);
    }
    if (workload.units_per_sample != 1) converted.value *= by.units_per_sample;
  } else if (counted != (workload.unit == "images"   ? Counted::kImages
                         : workload.unit == "tokens" ? Counted::kTokens
                                                     : Counted::kSamples)) {
    converted.expected =
        fmt::format("{} or samples/s, of throughput of {}", converted.unit, workload.name);
  }
  return converted;
}

InBaseUnits StepSeconds(double value, const std::string& unit) {
  if (CountedASecond(unit) == Counted::kSteps) return {1 / value, "s", ""};
  if (const auto factor = SecondsOf(unit)) return {value * *factor, "s", ""};
  return {0, "s", "s, ms or us, of a step, or steps/s"};
}

InBaseUnits Evaluated(double value, const std::string& unit,
                      const workloads::WorkloadDescriptor& workload) {
  if (workload.metric == "perplexity") {
    if (unit != "perplexity" && unit != "1") return {0, "", "perplexity"};
    return {value, workload.metric, value >= 1 ? "" : "a perplexity of at least 1"};
  }
  if (unit != "%" && unit != "1") return {0, "", fmt::format("% or 1, of {}", workload.metric)};
  const double fraction = unit == "%" ? value / 100 : value;
  return {fraction, workload.metric,
          fraction <= 1 ? ""
          : unit == "%" ? "at most 100"
                        : "at most 1, or % as the unit"};
}

constexpr Range kWorkers{1, 1'000'000}, kBatch{1, 100'000'000}, kRun{0, 1'000'000};
constexpr Range kGbps{0.001, 100'000}, kUnitsPerSample{1, 1e9};
constexpr std::size_t kLongestName = 64, kLongestSource = 200;
constexpr std::string_view kMetrics[] = {kThroughput, kStepSeconds, kFinalMetric, kSecondsToTarget};

bool IsSystemName(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::isalnum(static_cast<unsigned char>(name.front())) != 0 &&
         std::ranges::all_of(name, [](unsigned char c) {
           return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

std::string Ours(const std::map<std::string, std::string>& names, const std::string& theirs) {
  const auto found = names.find(theirs);
  return found == names.end() ? theirs : found->second;
}

// Reads the names of a setting, and the keys that its method leaves open.
class SettingReader {
 public:
  SettingReader(const GivenValues& given, const ImportMap& map, const Catalog& catalog,
                Problems& problems)
      : given_(given), map_(map), catalog_(catalog), problems_(problems) {}

  std::optional<ImportedSetting> Read() {
    const std::size_t before = problems_.size();
    ImportedSetting setting;
    setting.source = given_.NeedText("source", "the paper and table, or the address, it is from");
    if (setting.source.size() > kLongestSource)
      given_.Expected("source", fmt::format("at most {} bytes", kLongestSource));
    setting.system = given_.NeedText("system", "a name for the system that measured it");
    if (given_.Find("system") != nullptr && !IsSystemName(setting.system)) {
      given_.Expected("system", fmt::format("small letters, digits, - _ and ., a letter or digit "
                                            "first, at most {}",
                                            kLongestName));
    }
    const workloads::WorkloadDescriptor* workload = ReadWorkload(setting);
    ReadMethod(setting);
    setting.workers = given_.NeedInteger("workers", kWorkers).value_or(1);
    setting.batch_per_worker = given_.Integer("batch_per_worker", kBatch);
    ReadNetwork(setting);
    setting.run = given_.Integer("run", kRun).value_or(0);
    const auto units = given_.Number("units_per_sample", kUnitsPerSample);
    // Otherwise, results from batch and time would assume samples as long as ours.
    if (workload != nullptr && workload->units_per_sample != 1 && setting.batch_per_worker &&
        !units)
      given_.Expected("units_per_sample",
                      "how many " + std::string(workload->unit) + " a sample has there");
    if (workload != nullptr)
      setting.units_per_sample = units.value_or(static_cast<double>(workload->units_per_sample));
    return problems_.size() == before ? std::optional(setting) : std::nullopt;
  }

 private:
  const workloads::WorkloadDescriptor* ReadWorkload(ImportedSetting& setting) {
    const std::string theirs = given_.NeedText("workload", "one of `sparfuse list workloads`");
    if (theirs.empty()) return nullptr;
    setting.workload = Ours(map_.workloads, theirs);
    try {
      if (workloads::IsTable(setting.workload))
        setting.workload = TableWorkloadName(setting.workload, map_.folder);
      return &workloads::FindWorkload(setting.workload);
    } catch (const Error& error) {
      Unknown("workload", theirs, "workloads", Names(catalog_.workloads), setting.workload);
    }
    return nullptr;
  }

  void ReadMethod(ImportedSetting& setting) {
    const std::string theirs = given_.NeedText("method", "one of `sparfuse list methods`");
    if (theirs.empty()) return;
    setting.method = Ours(map_.methods, theirs);
    const Method* method = FindEntry(catalog_.methods, setting.method);
    if (method == nullptr)
      return Unknown("method", theirs, "methods", Names(catalog_.methods), setting.method);
    setting.sparsifier = given_.Text("sparsifier");
    setting.density = given_.Number("density", {1e-9, 1});
    if (!setting.sparsifier.empty() &&
        FindEntry(catalog_.sparsifiers, setting.sparsifier) == nullptr) {
      const auto known = Names(catalog_.sparsifiers);
      given_.Expected("sparsifier",
                      "one of `sparfuse list sparsifiers`" + Suggestion(setting.sparsifier, known));
    }
    if (method->dense()) {
      if (setting.density.value_or(1) != 1)
        given_.Expected("density",
                        fmt::format("1, or none: {} sends dense gradients", setting.method));
      if (!setting.sparsifier.empty() && setting.sparsifier != "none")
        given_.Expected("sparsifier",
                        fmt::format("none: {} sends dense gradients", setting.method));
      setting.density = 1;
      setting.sparsifier = "none";
    } else if (method->sparsifier_fixed && setting.sparsifier.empty()) {
      setting.sparsifier = method->sparsifier;
    }
  }

  void ReadNetwork(ImportedSetting& setting) {
    setting.ranks_per_node = given_.Integer("ranks_per_node", kWorkers);
    setting.network_gbps = given_.Number("network_gbps", kGbps);
    if (setting.network_gbps && !setting.ranks_per_node &&
        given_.Find("ranks_per_node") == nullptr) {
      given_.Expected("ranks_per_node",
                      "how many workers share a node's network: network_gbps is checked with it");
    }
  }

  void Unknown(const char* key, const std::string& theirs, const char* list,
               const std::vector<std::string>& known, const std::string& ours) {
    const std::string as = ours == theirs ? "" : fmt::format(" (which the map calls \"{}\")", ours);
    given_.Expected(key, fmt::format("one of `sparfuse list {}`, or in the map {} = {{ \"{}\" = "
                                     "\"ours\" }}, or leave_out_rows for its rows{}{}",
                                     list, list, theirs, as, Suggestion(ours, known)));
  }

  const GivenValues& given_;
  const ImportMap& map_;
  const Catalog& catalog_;
  Problems& problems_;
};

struct Stated {
  double value = 0, deviation = 0;  // deviation: absolute
};

// Reads "925.020" or "925.020 +- 4.42".
std::optional<Stated> StatedIn(std::string_view text) {
  for (const std::string_view between : {"+-", "±", "+/-"}) {
    const std::size_t at = text.find(between);
    if (at == std::string_view::npos || at == 0) continue;
    const auto value = NumberIn(text.substr(0, at));
    const auto deviation = NumberIn(text.substr(at + between.size()));
    if (!value || !deviation || *deviation < 0) return std::nullopt;
    return Stated{*value, *deviation};
  }
  const auto value = NumberIn(text);
  return value ? std::optional(Stated{*value, 0}) : std::nullopt;
}

// Metrics of a result: throughput and step time, one computed from the other if the batch is known,
// and metrics from the curve.
std::map<std::string, MetricValue> MetricsOf(const ImportedResult& result) {
  const workloads::WorkloadDescriptor& workload = workloads::FindWorkload(result.setting.workload);
  std::map<std::string, MetricValue> metrics = {{result.metric, {result.value, result.unit}}};
  if (const auto units = result.setting.units_per_step()) {
    if (result.metric == kThroughput)
      metrics[std::string(kStepSeconds)] = {*units / result.value, "s"};
    if (result.metric == kStepSeconds)
      metrics[std::string(kThroughput)] = {*units / result.value, workload.unit + "/s"};
  }
  if (!result.target) return metrics;
  const auto reached = std::ranges::find_if(result.curve, [&](const ImportedEvaluation& each) {
    return workload.higher_is_better ? each.metric >= *result.target
                                     : each.metric <= *result.target;
  });
  if (reached == result.curve.end()) return metrics;
  metrics["steps_to_target"] = {reached->step, "steps"};
  if (reached->seconds) metrics[std::string(kSecondsToTarget)] = {*reached->seconds, "s"};
  return metrics;
}

}  // namespace

bool IsRate(std::string_view metric) { return metric == kThroughput; }

InBaseUnits ToBaseUnits(std::string_view metric, double value, std::string_view unit,
                        const workloads::WorkloadDescriptor& workload, const CountedBy& by) {
  const std::string normal = Normal(unit);
  if (metric == kFinalMetric) {
    return value < 0 ? InBaseUnits{0, "", "a number of at least 0"}
                     : Evaluated(value, normal, workload);
  }
  if (!(value > 0)) return {0, "", "a number above 0"};
  if (metric == kThroughput) return Throughput(value, normal, workload, by);
  if (metric == kStepSeconds) return StepSeconds(value, normal);
  const auto factor = normal.find('/') == std::string::npos ? SecondsOf(normal) : std::nullopt;
  if (!factor) return {0, "s", "s, min, h or days"};
  return {value * *factor, "s", ""};
}

std::optional<double> ImportedSetting::units_per_step() const {
  if (!batch_per_worker) return std::nullopt;
  return static_cast<double>(workers) * *batch_per_worker * units_per_sample;
}

std::optional<ImportedSetting> SettingOf(const GivenValues& given, const ImportMap& map,
                                         const Catalog& catalog, Problems& problems) {
  return SettingReader(given, map, catalog, problems).Read();
}

std::optional<ImportedResult> ResultOf(const GivenValues& given, const ImportMap& map,
                                       const Catalog& catalog, Problems& problems) {
  const std::size_t before = problems.size();
  const auto setting = SettingOf(given, map, catalog, problems);
  ImportedResult result;
  result.where = given.where();
  result.metric = given.NeedText("metric", fmt::format("one of {}", fmt::join(kMetrics, ", ")));
  if (given.Find("metric") != nullptr &&
      std::ranges::find(kMetrics, result.metric) == std::end(kMetrics))
    given.Expected("metric", fmt::format("one of {}", fmt::join(kMetrics, ", ")));
  const std::string unit = given.NeedText("unit", "images/s, ms, %, h or the like");
  const std::string per = given.Text("per");
  if (IsRate(result.metric) && per != "worker" && per != "system")
    given.Expected("per", "worker or system: whether it is a rate of one worker or of all");
  const std::string text = given.NeedText("value", "a number");
  const auto stated = StatedIn(text);
  constexpr double kMostDeviation = 10;
  if (stated && stated->value != 0 && stated->deviation > kMostDeviation * std::abs(stated->value))
    given.Expected("value", "a deviation of at most ten times the number");
  if (!text.empty() && !stated)
    given.Expected("value",
                   "a number, or one with its deviation as 925.0 +- 4.4; in the map, leave_out = "
                   "[\"OOM\"] leaves cells out, and thousands = \",\" reads 2,400");
  if (problems.size() != before) return std::nullopt;
  const CountedBy by{setting->workers, per == "worker",
                     given.Number("units_per_sample", kUnitsPerSample).value_or(0)};
  const InBaseUnits converted = ToBaseUnits(result.metric, stated->value, unit,
                                            workloads::FindWorkload(setting->workload), by);
  if (!converted.expected.empty()) {
    // Either the value or the unit may be wrong, so both are shown.
    problems.push_back(fmt::format("{} = \"{}\", unit \"{}\": expected {}",
                                   given.Find("value")->where, text, unit, converted.expected));
    return std::nullopt;
  }
  result.setting = *setting;
  result.unit = converted.unit;
  result.value = converted.value;
  if (stated->value != 0) result.deviation = stated->deviation / std::abs(stated->value);
  result.stated = fmt::format("{} {}{}", Trimmed(text), unit,
                              !IsRate(result.metric) ? ""
                              : by.of_one_worker     ? ", of a worker"
                                                     : "");
  return result;
}

OthersConfig ConfigOf(const ImportedResult& result) {
  const ImportedSetting& setting = result.setting;
  const bool timed = result.metric == kThroughput || result.metric == kStepSeconds;
  OthersConfig config;
  config.kind = timed ? TrialKind::kThroughput : TrialKind::kConvergence;
  config.metric = result.metric;
  config.workload = setting.workload;
  config.method = setting.method;
  config.sparsifier = setting.sparsifier;
  config.workers = setting.workers;
  config.density = setting.density;
  config.network_gbps = setting.network_gbps;
  config.target = result.target;
  config.ranks_per_node = setting.ranks_per_node;
  config.batch_per_worker = setting.batch_per_worker;
  return config;
}

System SystemOf(const ImportedSetting& setting) {
  return {.kind = std::string(kImported), .name = setting.system, .source = setting.source};
}

Trial TrialOf(const ImportedResult& result) {
  Trial trial;
  trial.experiment = kImported;
  trial.part = result.setting.system;
  trial.metrics = MetricsOf(result);
  trial.config = ToJson(ConfigOf(result));
  trial.config_hash = ConfigHash(trial.config);
  trial.system = SystemOf(result.setting);
  trial.system_hash = HashOf(trial.system);
  trial.block = result.setting.run;
  ImportedFrom& from = trial.imported.emplace();
  from.file = result.file;
  from.sha256 = result.sha256;
  from.stated = result.stated;
  from.deviation = std::max(result.deviation, 0.0);
  if (result.steps > 0) {
    from.steps = static_cast<std::int64_t>(result.steps);
    from.standard_error = result.standard_error;
  }
  if (const auto& implied = result.implied_gbps) {
    from.implied_gbps = {implied->first, std::nullopt};
    if (std::isfinite(implied->second)) from.implied_gbps.back() = implied->second;
  }
  from.doubt = fmt::format("{}", fmt::join(result.doubts, "; "));
  return trial;
}

std::optional<Trial> CheckStorable(const ImportedResult& result, Problems& problems) {
  try {
    if (!std::isfinite(result.deviation)) SPARFUSE_THROW(kData, "a deviation beyond all numbers");
    Trial trial = TrialOf(result);
    TrialOf(ToJson(trial), result.where);
    return trial;
  } catch (const Error& error) {
    const std::string why = error.what();
    problems.push_back(why.starts_with(result.where) ? why : result.where + ": " + why);
  }
  return std::nullopt;
}

std::string TitleOf(const ImportedResult& result) {
  const ImportedSetting& setting = result.setting;
  return fmt::format("{} of {}, {}, {} worker{}{}", result.metric, setting.method,
                     WorkloadLabel(setting.workload), setting.workers,
                     setting.workers == 1 ? "" : "s",
                     setting.density ? fmt::format(", density {:g}", *setting.density) : "");
}

}  // namespace sparfuse::harness
