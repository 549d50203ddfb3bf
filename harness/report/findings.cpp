#include "harness/report/findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// Two cells of one setting, and the ratio of their metric.
struct Pair {
  std::size_t of = 0, over = 0;
  Interval ratio;
};

// The pairs of a part by (method, over, metric).
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
  std::ranges::replace(words, '_', ' ');
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
  if (std::ranges::none_of(known, same)) known.push_back({of, over, *ratio});
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
  return SmallerIsBetter(metric) ? *std::ranges::min_element(ratios, less)
                                 : *std::ranges::max_element(ratios, less);
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
      chosen = std::ranges::max_element(all, [&](const auto& a, const auto& b) {
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

constexpr std::size_t kMany = 12;  // above this number of settings, a row shows only marks

struct Kind {
  Verdict verdict;
  const char* mark;
  const char* look;
  const char* word;
  const char* meaning;
};

// The worst verdict comes first.
const std::array kKinds = {
    Kind{Verdict::kInvalid, "!", "alarm", "invalid", "a correctness check failed"},
    Kind{Verdict::kNotReproduced, "✗", "alarm", "not reproduced", "the other direction"},
    Kind{Verdict::kDoesNotHold, "✗", "alarm", "does not hold",
         "the whole interval is on the other side"},
    Kind{Verdict::kInconclusive, "?", "part", "inconclusive", "the interval contains both answers"},
    Kind{Verdict::kDirectionOnly, "≈", "part", "direction only",
         "the stated direction, another size"},
    Kind{Verdict::kDisturbed, "~", "part", "not decided",
         "the trials that it needs were disturbed"},
    Kind{Verdict::kTargetNotReached, "○", "part", kTargetNotReached.data(),
         "no trial of a cell reached its target"},
    Kind{Verdict::kNotRun, "–", "quiet", "not run", "a cell has no trial that counts"},
    Kind{Verdict::kConsistentModelled, "✓", "good", "consistent",
         "the same of a modelled or emulated number"},
    Kind{Verdict::kReproduced, "✓", "good", "reproduced",
         "the interval is within 8 % of the stated number"},
    Kind{Verdict::kHolds, "✓", "good", "holds", "the whole interval is on the expected side"}};
static_assert(kReproducedWithin == 0.08, "the meaning of \"reproduced\" says so");

const Kind& KindOf(const ClaimResult& judged) {
  return *std::ranges::find(kKinds, judged.verdict, &Kind::verdict);
}

using Claims = std::vector<ClaimResult>;

void SortWorstFirst(Claims& claims) {
  std::ranges::stable_sort(claims, {}, [](const ClaimResult& claim) { return &KindOf(claim); });
}

// The number of claims of each kind, the worst kind first.
std::vector<std::pair<const Kind*, std::size_t>> Counted(const Claims& claims) {
  std::vector<std::pair<const Kind*, std::size_t>> counted;
  for (const Kind& kind : kKinds) {
    const auto count = std::ranges::count(claims, kind.verdict, &ClaimResult::verdict);
    if (count > 0) counted.emplace_back(&kind, static_cast<std::size_t>(count));
  }
  return counted;
}

std::string Summary(const Claims& claims) {
  std::vector<std::string> words;
  for (const auto& [kind, count] : Counted(claims))
    words.push_back(fmt::format("{} {} {}", kind->mark, count, kind->word));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string Meanings(const Claims& claims) {
  std::vector<std::string> words;
  for (const auto& [kind, count] : Counted(claims))
    words.push_back(fmt::format("{} {}: {}.", kind->mark, kind->word, kind->meaning));
  return fmt::format("{}", fmt::join(words, " "));
}

void AddOnce(std::vector<std::string>& words, std::string word) {
  if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
}

// The claim's combination of for_each, or else the keys of its cells in which it differs from other
// claims of its sentence.
std::string SettingOf(const ClaimResult& judged, const Claims& others) {
  if (!judged.claim->setting.empty()) return judged.claim->setting;
  std::vector<std::string> words;
  for (const auto side : {&Claim::of, &Claim::over}) {
    const json& cell = judged.claim->*side;
    for (const auto& [key, value] : cell.items()) {
      const bool differs = std::ranges::any_of(others, [&, &name = key, &own = value](auto& other) {
        return (other.claim->*side).value(name, json()) != own;
      });
      if (differs)
        AddOnce(words, value.is_string() ? value.get<std::string>() : key + " " + value.dump());
    }
  }
  return words.empty() ? WordsOf(judged).expected : fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> FactsOf(const Claims& claims) {
  std::vector<std::string> expected, modes;
  for (const ClaimResult& claim : claims) {
    AddOnce(expected, WordsOf(claim).expected);
    AddOnce(modes, claim.mode);
  }
  const auto [least, most] = std::ranges::minmax(claims, {}, &ClaimResult::n);
  return {claims.front().claim->metric,
          "expected " + (expected.size() == 1 ? expected.front() : "by setting"),
          fmt::format("{}", fmt::join(modes, ", ")),
          least.n == most.n ? fmt::format("n = {}", least.n)
                            : fmt::format("n = {} to {}", least.n, most.n)};
}

// `claims` share one sentence, and the worst comes first.
json SentenceOf(const Claims& claims) {
  const ClaimResult& first = claims.front();
  json settings = json::array();
  Table table{.columns = {"setting", "expected", "ours (95 %)", "n", "mode", "verdict"},
              .alignment = "llrrll"};
  for (const ClaimResult& claim : claims) {
    const ClaimWords words = WordsOf(claim);
    const std::string setting = SettingOf(claim, claims);
    settings.push_back({{"mark", KindOf(claim).mark},
                        {"look", KindOf(claim).look},
                        {"words", setting},
                        {"value", words.ours.substr(0, words.ours.find(" ["))},
                        {"ours", words.ours},
                        {"verdict", words.verdict}});
    table.rows.push_back(
        {setting, words.expected, words.ours,
         claim.mode == "modelled" ? std::to_string(claim.n) : table.BlocksText(claim.n), claim.mode,
         words.verdict});
  }
  return {{"mark", KindOf(first).mark},
          {"look", KindOf(first).look},
          {"sentence", claims.size() == 1 ? first.claim->quote : first.claim->sentence},
          {"facts", FactsOf(claims)},
          {"settings", std::move(settings)},
          {"many", claims.size() > kMany},
          {"summary", Summary(claims)},
          {"table", ToJson(table)}};
}

// Neighbouring claims with one sentence and metric share a row.
std::vector<Claims> BySentence(const Claims& claims) {
  std::vector<Claims> sentences;
  for (const ClaimResult& claim : claims) {
    const Claim* before = sentences.empty() ? nullptr : sentences.back().front().claim;
    const bool same = before != nullptr && before->sentence == claim.claim->sentence &&
                      before->metric == claim.claim->metric;
    if (!same) sentences.emplace_back();
    sentences.back().push_back(claim);
  }
  return sentences;
}

// Groups the claims of each part. The worst rows come first.
json GroupOf(const std::string& id, const std::string& title, const std::vector<Claims>& parts) {
  std::vector<Claims> sentences;
  for (const Claims& part : parts)
    std::ranges::move(BySentence(part), std::back_inserter(sentences));
  for (Claims& sentence : sentences) SortWorstFirst(sentence);
  std::ranges::stable_sort(sentences, {},
                           [](const Claims& claims) { return &KindOf(claims.front()); });
  json made = json::array();
  for (const Claims& sentence : sentences) made.push_back(SentenceOf(sentence));
  return {{"id", id}, {"title", title}, {"sentences", std::move(made)}};
}

JudgedClaims Whole(const Claims& claims, json groups) {
  return {claims.size(), Summary(claims), Meanings(claims), std::move(groups)};
}

void Add(Claims& all, const Claims& more) { all.insert(all.end(), more.begin(), more.end()); }

}  // namespace

std::string DisturbedWarning(const std::vector<PartResult>& results) {
  return DisturbedWarning(std::vector{&results});
}

std::string DisturbedWarning(const std::vector<const std::vector<PartResult>*>& results) {
  std::set<std::string> all;
  std::set<std::string> disturbed;
  std::map<std::string, std::vector<double>> causes;
  bool count = false;
  for (const auto* experiment : results) {
    for (const PartResult& part : *experiment) {
      for (const CellResult& cell : part.cells) {
        if (cell.cell->config.modelled()) continue;
        count = cell.disturbed_trials == DisturbedTrials::kCount;
        for (const auto& [block, trial] : cell.trials) {
          all.insert(trial->trial_id);
          if (!cell.disturbed.contains(block) || !disturbed.insert(trial->trial_id).second)
            continue;
          const nlohmann::json& quiet = trial->quiet;
          if (!quiet.contains("causes")) continue;
          for (const auto& [cause, value] : quiet["causes"].items())
            causes[cause].push_back(value.is_number() ? value.get<double>() : 0);
        }
      }
    }
  }
  if (disturbed.empty()) return "";
  std::vector<std::string> words;
  for (const auto& [cause, values] : causes) {
    words.push_back(CauseWords(cause, Median(values)) +
                    (values.size() > 1 ? fmt::format(" (median of {})", values.size()) : ""));
  }
  return fmt::format("{} of {} live trials were disturbed: {}. Their times {}", disturbed.size(),
                     all.size(), fmt::join(words, ", "),
                     count ? "count all the same (--keep-disturbed)"
                           : "do not count; `sparfuse run --retry-disturbed` runs them again");
}

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

JudgedClaims JudgedByPart(std::span<const PartResult> results) {
  Claims all;
  json groups = json::array();
  for (const PartResult& result : results) {
    const Claims claims = JudgeClaims(result);
    if (claims.empty()) continue;
    Add(all, claims);
    groups.push_back(GroupOf(result.part->id, result.part->title, {claims}));
  }
  return Whole(all, std::move(groups));
}

JudgedClaims JudgedByExperiment(std::span<const ClaimingExperiment> experiments) {
  Claims all;
  json groups = json::array();
  for (const ClaimingExperiment& experiment : experiments) {
    Claims claims;
    std::vector<Claims> parts;
    for (const PartResult& result : experiment.results) {
      parts.push_back(JudgeClaims(result));
      Add(claims, parts.back());
    }
    if (claims.empty()) continue;
    Add(all, claims);
    groups.push_back(
        GroupOf(experiment.id, fmt::format("{}: {}", experiment.title, Summary(claims)), parts));
  }
  return Whole(all, std::move(groups));
}

json ToJson(const JudgedClaims& judged) {
  return {{"claims", judged.claims},
          {"summary", judged.summary},
          {"meanings", judged.meanings},
          {"groups", judged.groups}};
}

}  // namespace sparfuse::harness
