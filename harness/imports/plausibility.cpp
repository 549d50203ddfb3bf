// Checks imported numbers against one another and against their stated network.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "harness/clusters/cluster_calibration.hpp"
#include "harness/files/canonical.hpp"
#include "harness/imports/imports.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr double kMostApart = 0.1, kMostOverLinear = 1.25;
constexpr double kTooMuch = 1.05, kTooLittle = 0.5;  // as for declared clusters (implied_rate.cpp)

bool Alike(double one, double other) { return std::abs(one / other - 1) <= kMostApart; }

// The place "numbers.csv:3". It is stored with the trial, so it omits the folder.
std::string PlaceOf(const ImportedResult& result) {
  return std::filesystem::path(result.where).filename().string();
}

// A text that is equal for results that differ in `keys` alone.
std::string Without(const ImportedResult& result, std::initializer_list<const char*> keys) {
  json all = ToJson(ConfigOf(result));
  for (const char* key : keys) all.erase(key);
  all["system"] = ToJson(SystemOf(result.setting));
  all["run"] = result.setting.run;
  return CanonicalJson(all);
}

std::optional<double> StepOf(const ImportedResult& result) {
  if (result.metric == kStepSeconds) return result.value;
  const auto units = result.setting.units_per_step();
  return result.metric == kThroughput && units ? std::optional(*units / result.value)
                                               : std::nullopt;
}

void DoubtTwoOfOne(std::span<ImportedResult> results) {
  std::map<std::string, const ImportedResult*> steps;
  for (const ImportedResult& result : results) {
    if (result.metric == kStepSeconds && StepOf(result))
      steps[Without(result, {"metric"})] = &result;
  }
  if (steps.empty()) return;
  for (ImportedResult& result : results) {
    const auto units = result.setting.units_per_step();
    if (result.metric != kThroughput || !units) continue;
    const auto step = steps.find(Without(result, {"metric"}));
    if (step == steps.end()) continue;
    const double implied = *units / step->second->value, times = result.value / implied;
    if (Alike(times, 1)) continue;
    const int workers = result.setting.workers;
    const bool of_one = Alike(times, workers) || Alike(times, 1.0 / workers);
    result.doubts.push_back(fmt::format(
        "the step time of {} makes {:.4g} {} of it, {:.3g} times less{}", PlaceOf(*step->second),
        implied, result.unit, times,
        of_one ? fmt::format(": one worker's, or the rate of all {}? (per)", workers) : ""));
  }
}

// Whether `more` continues the scaling of `fewer`: on equally filled nodes, or from a part of one.
bool IsOnTheWay(const ImportedSetting& fewer, const ImportedSetting& more) {
  if (fewer.workers >= more.workers) return false;
  if (fewer.ranks_per_node == more.ranks_per_node) return true;
  return fewer.ranks_per_node && more.ranks_per_node && fewer.workers <= *fewer.ranks_per_node &&
         *fewer.ranks_per_node <= *more.ranks_per_node;
}

void DoubtScaling(std::span<ImportedResult> results) {
  std::map<std::string, std::vector<ImportedResult*>> curves;
  for (ImportedResult& result : results) {
    if (result.metric == kThroughput)
      curves[Without(result, {"workers", "ranks_per_node"})].push_back(&result);
  }
  for (auto& [key, curve] : curves) {
    std::ranges::stable_sort(curve, {},
                             [](const ImportedResult* each) { return each->setting.workers; });
    for (std::size_t i = 1; i < curve.size(); ++i) {
      ImportedResult& more = *curve[i];
      std::size_t before = i;
      while (before > 0 && !IsOnTheWay(curve[before - 1]->setting, more.setting)) --before;
      if (before == 0) continue;
      const ImportedResult& fewer = *curve[before - 1];
      const double grows = more.value / fewer.value;
      const double workers = static_cast<double>(more.setting.workers) / fewer.setting.workers;
      const bool over_linear = grows > kMostOverLinear * workers;
      if (!over_linear && grows > 1) continue;
      more.doubts.push_back(
          fmt::format("{:.3g} times the throughput of {} with {:.3g} times its workers: {}", grows,
                      PlaceOf(fewer), workers,
                      over_linear ? "numbers of all workers, taken for one's? (per = \"system\")"
                                  : "numbers of one worker, taken for all's? (per = \"worker\")"));
    }
  }
}

void DoubtLabels(std::span<ImportedResult> results, const Catalog& catalog) {
  std::map<std::string, double> alone;  // seconds of a step with one worker
  const auto but_workers = [](const ImportedResult& result) {
    return Without(result, {"workers", "metric", "network_gbps", "ranks_per_node", "method"});
  };
  for (const ImportedResult& result : results) {
    if (const auto step = StepOf(result); step && result.setting.workers == 1)
      alone[but_workers(result)] = *step;
  }
  for (ImportedResult& result : results) {
    const ImportedSetting& setting = result.setting;
    const Method* method = FindEntry(catalog.methods, setting.method);
    const auto step = StepOf(result);
    if (!setting.network_gbps || !step || setting.workers <= setting.ranks_per_node ||
        !method->dense() || method->collective != "ring-allreduce")
      continue;
    const int nodes = (setting.workers + *setting.ranks_per_node - 1) / *setting.ranks_per_node;
    const auto one = alone.find(but_workers(result));
    const double exposed = one == alone.end() ? 0 : *step - one->second;
    const RateBounds rate = RateBoundsOf(setting.workload, setting.workers, nodes, exposed, *step);
    result.implied_gbps = {rate.least, rate.most};
    if (rate.least > kTooMuch * *setting.network_gbps) {
      result.doubts.push_back(fmt::format(
          "a step of {:.4g} s sends {:.4g} MB of float32 or more out of a node: {:.4g} Gbit/s even "
          "if the whole step hides it, and the network has {:g} Gbit/s",
          *step, 1e-6 * rate.least_bytes, rate.least, *setting.network_gbps));
    } else if (rate.most < kTooLittle * *setting.network_gbps) {
      result.doubts.push_back(fmt::format(
          "a step takes {:.4g} s longer than one worker's; in that time a ring sends {:.4g} MB of "
          "float32, {:.4g} Gbit/s at most: less than half of {:g}, so that the network is slower "
          "than its label or waits for hosts",
          exposed, 1e-6 * rate.most_bytes, rate.most, *setting.network_gbps));
    }
  }
}

}  // namespace

void Doubt(std::span<ImportedResult> results, const Catalog& catalog) {
  DoubtTwoOfOne(results);
  DoubtScaling(results);
  DoubtLabels(results, catalog);
}

}  // namespace sparfuse::harness
