#include "harness/report/headlines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/catalog/model_table.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/report/tables/wording.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Two cells of one setting, and the ratio of their metric.
struct Pair {
  std::size_t of = 0, over = 0;
  Interval ratio;
};

// What a part has of (method, over, metric).
using Comparisons = std::map<std::tuple<std::string, std::string, std::string>, std::vector<Pair>>;

bool SmallerIsBetter(const std::string& metric) {
  return metric.find("seconds") != std::string::npos || metric.find("steps") != std::string::npos ||
         metric.ends_with("_bytes");
}

std::string MetricWords(const std::string& metric) {
  static const std::map<std::string, std::string> kWords = {
      {"step_seconds", "step time"},
      {"seconds_to_target", "training time to the target"},
      {"exposed_communication_seconds", "exposed communication"}};
  if (const auto known = kWords.find(metric); known != kWords.end()) return known->second;
  std::string words = metric;
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string MethodOf(const PartResult& result, std::size_t cell) {
  return result.cells[cell].cell->config.method;
}

void Add(const PartResult& result, std::size_t of, std::size_t over, const std::string& metric,
         Comparisons& comparisons) {
  const auto ratio = RatioOf(result.cells[of], result.cells[over], metric);
  if (!ratio) return;
  auto& known = comparisons[{MethodOf(result, of), MethodOf(result, over), metric}];
  const auto same = [&](const Pair& each) { return each.of == of && each.over == over; };
  if (std::none_of(known.begin(), known.end(), same)) known.push_back({of, over, *ratio});
}

Comparisons OfClaims(const PartResult& result) {
  Comparisons comparisons;
  for (const Claim& claim : result.part->claims) {
    if (claim.compared != Compared::kRatio) continue;
    if (MethodOf(result, claim.of_cell) == MethodOf(result, claim.over_cell)) continue;
    if (result.cells[claim.of_cell].invalid || result.cells[claim.over_cell].invalid) continue;
    Add(result, claim.of_cell, claim.over_cell, claim.metric, comparisons);
  }
  return comparisons;
}

const Pair& Best(const std::vector<Pair>& ratios, const std::string& metric) {
  const auto less = [](const Pair& a, const Pair& b) { return a.ratio.value < b.ratio.value; };
  return SmallerIsBetter(metric) ? *std::min_element(ratios.begin(), ratios.end(), less)
                                 : *std::max_element(ratios.begin(), ratios.end(), less);
}

Comparisons OfReference(const PartResult& result, const std::string& own) {
  for (const char* metric : {"seconds_to_target", "final_metric", "throughput"}) {
    Comparisons all;
    for (std::size_t i = 0; i < result.cells.size(); ++i) {
      if (const auto reference = result.ReferenceOf(i)) Add(result, i, *reference, metric, all);
    }
    if (all.empty()) continue;
    auto chosen = all.find({own, result.part->reference, metric});
    if (chosen == all.end()) {
      chosen = std::max_element(all.begin(), all.end(), [&](const auto& a, const auto& b) {
        const double first = Best(a.second, metric).ratio.value;
        const double second = Best(b.second, metric).ratio.value;
        return SmallerIsBetter(metric) ? first > second : first < second;
      });
    }
    return {*chosen};
  }
  return {};
}

// "digits-resnet, 2 workers, 1 Gbit/s"
std::string SettingWords(const CellConfig& config) {
  const int workers = config.workers;
  std::string words = fmt::format("{}, {} worker{}", WorkloadLabel(config.workload), workers,
                                  workers == 1 ? "" : "s");
  if (config.link) {
    words += ", " + LinkWords(config.link);
    if (config.link->host_us > 0) {
      words += fmt::format(", {:g} us of the host an exchange", config.link->host_us);
    }
  } else if (!config.cluster.empty() && !IsOwnCluster(config.cluster)) {
    words += ", " + config.cluster;
  }
  if (config.sparsifier != "none") {
    words += fmt::format(", {} at density {:g}", config.sparsifier, config.density);
  }
  return words;
}

Headline Stated(const PartResult& result, const Comparisons::value_type& comparison) {
  Headline headline;
  headline.part = result.part->id;
  std::tie(headline.method, headline.over, headline.metric) = comparison.first;
  const auto& ratios = comparison.second;
  const Pair& best = Best(ratios, headline.metric);
  headline.settings = ratios.size();
  headline.best = best.ratio;
  headline.least = headline.most = best.ratio.value;
  std::size_t blocks = best.ratio.n;
  std::set<std::string> modes;
  for (const Pair& each : ratios) {
    headline.least = std::min(headline.least, each.ratio.value);
    headline.most = std::max(headline.most, each.ratio.value);
    const std::string mode = WeakerMode(result.cells[each.of], result.cells[each.over]);
    modes.insert(mode);
    if (mode != "modelled") blocks = std::min(blocks, each.ratio.n);
  }
  for (const auto& mode : modes) headline.mode += (headline.mode.empty() ? "" : " and ") + mode;
  const std::string what = fmt::format("the {} of {}", MetricWords(headline.metric), headline.over);
  const std::string setting = SettingWords(result.cells[best.of].cell->config);
  headline.sentence =
      ratios.size() == 1
          ? fmt::format("{}: {} {} ({}", headline.method, RatioText(best.ratio), what, setting)
          : fmt::format("{}: {} to {} {} in {} settings, {} at best ({}", headline.method,
                        RatioText(headline.least), RatioText(headline.most), what, ratios.size(),
                        RatioText(best.ratio), setting);
  headline.sentence += "; " + headline.mode;
  if (headline.mode != "modelled") {
    headline.sentence += fmt::format(", {} block{}{}", blocks, blocks == 1 ? "" : "s",
                                     blocks < kPreliminaryBelowBlocks ? ", preliminary" : "");
  }
  headline.sentence += ").";
  return headline;
}

}  // namespace

std::vector<Headline> HeadlinesOf(const Experiment& experiment,
                                  const std::vector<PartResult>& results) {
  std::vector<Headline> headlines;
  for (const PartResult& result : results) {
    if (IsOfTwins(*result.part)) continue;
    Comparisons comparisons = OfClaims(result);
    if (comparisons.empty()) comparisons = OfReference(result, experiment.paper);
    const std::size_t first = headlines.size();
    for (const auto& comparison : comparisons) headlines.push_back(Stated(result, comparison));
    std::stable_sort(headlines.begin() + static_cast<std::ptrdiff_t>(first), headlines.end(),
                     [&](const Headline& a, const Headline& b) {
                       const bool own_a = a.method == experiment.paper;
                       const bool own_b = b.method == experiment.paper;
                       if (own_a != own_b) return own_a;
                       return std::abs(std::log(a.best.value)) > std::abs(std::log(b.best.value));
                     });
  }
  return headlines;
}

}  // namespace sparfuse::harness
