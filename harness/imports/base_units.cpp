#include "harness/imports/base_units.hpp"

#include <fmt/format.h>

#include <cctype>
#include <map>
#include <optional>

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

// "img/sec" is images a second; nothing for what is no rate.
std::optional<Counted> CountedASecond(const std::string& unit) {
  const std::size_t slash = unit.find('/');
  if (slash == std::string::npos) return std::nullopt;
  if (Find(TimeNames(), std::string_view(unit).substr(slash + 1)) != 1.0) return std::nullopt;
  return Find(CountedNames(), std::string_view(unit).substr(0, slash));
}

// "ms" or "ms/iteration": the factor to seconds.
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

}  // namespace sparfuse::harness
