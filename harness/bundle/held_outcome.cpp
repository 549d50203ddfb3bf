#include "harness/bundle/held_outcome.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/evidence/stated.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

std::string Differs(const std::string& key, const json& stored, const json& given) {
  return fmt::format("{}: trial.json has {}, outcome.json has {}", key, Shown(stored),
                     Shown(given));
}

// The readings alone. The judgement depends on other trials' readings, too, and comes later.
json ReadingsOf(std::optional<Quiet> quiet) {
  if (!quiet) return json();
  quiet->limits.reset();
  quiet->slowdown.reset();
  return ToJson(quiet);
}

std::string WhatMetricsContradict(const Trial& trial, const Outcome& outcome) {
  for (const auto& [name, metric] : trial.metrics) {
    const auto found = outcome.metrics.find(name);
    const bool is_there = found != outcome.metrics.end();
    if (is_there && found->second == metric) continue;
    return Differs("metrics", ToJson(MetricValues{{name, metric}}),
                   is_there ? ToJson(MetricValues{*found}) : json());
  }
  return "";
}

// A trial's seconds are its turns and its share of the launch's start.
std::string WhatSecondsContradict(const Trial& trial, const Outcome& outcome) {
  if (!IsLive(trial) || !trial.launch || outcome.turn_seconds <= 0) return "";
  const double start = trial.launch->start_seconds.value_or(0);
  const double given = outcome.turn_seconds + start / trial.launch->trials;
  if (AreEqual(trial.seconds, given)) return "";
  return fmt::format(
      "seconds: trial.json has {}, turn_seconds of outcome.json and its part of the launch's start "
      "give {}",
      trial.seconds, given);
}

// The number of tensors in a list by unit, like "3,8"; 0 for another form.
std::int64_t TensorsIn(std::string_view sizes) {
  std::int64_t sum = 0;
  while (!sizes.empty()) {
    std::int64_t size = 0;
    const auto read = std::from_chars(sizes.data(), sizes.data() + sizes.size(), size);
    if (read.ec != std::errc() || size <= 0) return 0;
    sum += size;
    sizes.remove_prefix(static_cast<std::size_t>(read.ptr - sizes.data()));
    if (!sizes.empty() && sizes.front() != ',') return 0;
    sizes.remove_prefix(sizes.empty() ? 0 : 1);
  }
  return sum;
}

// A plan must contain all tensors.
std::string WhatPlansContradict(const Trial& trial, const Outcome& outcome) {
  const auto tensors = static_cast<std::int64_t>(trial.layout.size());
  if (tensors == 0) return "";
  const auto wrong = [&](const std::string& key, const std::string& sizes) {
    return TensorsIn(sizes) == tensors
               ? ""
               : fmt::format("outcome.json: {}: \"{}\": expected units of {} tensors", key, sizes,
                             tensors);
  };
  if (!outcome.plan.empty()) {
    if (const std::string found = wrong("plan", outcome.plan); !found.empty()) return found;
  }
  if (!outcome.plans.is_array()) return "";
  for (std::size_t i = 0; i < outcome.plans.size(); ++i) {
    const std::string found =
        wrong(fmt::format("plans.{}.unit_sizes", i), TextOf(outcome.plans[i], "unit_sizes"));
    if (!found.empty()) return found;
  }
  return "";
}

// The times that a profile's trial states are of its measurement, as are the number of its steps.
std::string WhatProfileContradicts(const Trial& trial, const Outcome& outcome) {
  const double steps = NumberOf(trial.config, "steps");
  if (!outcome.n || static_cast<double>(*outcome.n) != steps)
    return fmt::format("outcome.json: n = {}: expected the {:g} of config.steps",
                       outcome.n ? json(*outcome.n).dump() : "null", steps);
  const json backward =
      outcome.profile.is_object() ? outcome.profile.value("backward", json()) : json();
  for (const auto& [metric, key] : {std::pair("forward_seconds", "forward_seconds"),
                                    {"backward_seconds", "unhooked_seconds"},
                                    {"update_seconds", "update_seconds"}}) {
    const auto said = trial.metrics.find(metric);
    if (said == trial.metrics.end() || !said->second.value)
      return fmt::format("metrics: expected {} of a profile", metric);
    if (!AreEqual(*said->second.value, NumberOf(backward, key)))
      return SaidAndGiven(metric, *said->second.value,
                          backward.is_object() ? backward.value(key, json()) : json(),
                          "profile.backward of outcome.json has");
  }
  if (trial.metrics.size() > 3) return "metrics: expected three of a profile";
  return "";
}

// Whether names were removed from a configuration, which changes its hash.
bool IsScrubbed(const json& config) {
  const std::string text = config.dump();
  const auto has = [&](const char* word) { return text.find(word) != std::string::npos; };
  return has("HOST") || has("USER") || has("PATH") || has("SECRET");
}

// Checks an id "EXPERIMENT/PART/METHOD-WORKLOAD-wN-HASH-ORIGIN-bBLOCK-ATTEMPT". The digits of the
// hash are from the configuration that ran.
std::string WhatIdContradicts(const Trial& trial) {
  const std::string& id = trial.trial_id;
  const std::string place = trial.experiment + "/" + trial.part + "/";
  const std::string block = fmt::format("-b{}", trial.block);
  const std::string_view named = std::string_view(id).substr(0, id.rfind('-'));
  if (!id.starts_with(place) || named.size() < place.size() || !named.ends_with(block))
    return fmt::format(
        "trial_id: {}: expected one that begins with {} and ends with {}-N, of its "
        "experiment, part and block",
        id, place, block);
  const std::string cell = fmt::format(
      "{}{}-{}-w{}-", place, IsProfile(trial) ? "profile" : TextOf(trial.config, "method"),
      WorkloadLabel(TextOf(trial.config, "workload")),
      static_cast<std::int64_t>(NumberOf(trial.config, "workers")));
  std::string_view rest = named.substr(0, named.size() - block.size());
  const bool names_cell = rest.find("-w", place.size()) != std::string_view::npos;
  if (!names_cell || IsScrubbed(trial.config)) return "";
  const std::string hash = trial.config_hash.substr(0, 8);
  const bool is_of_cell = rest == cell + hash || rest == cell + hash + "-" + trial.origin;
  if (is_of_cell) return "";
  return fmt::format("trial_id: {}: expected {}{}-{}, of its configuration and origin", id, cell,
                     hash, trial.origin);
}

// Checks only values that a run copies unchanged, and values that other keys of the trial imply.
std::string WhatOutcomeContradicts(const Trial& trial, const Outcome& outcome) {
  if (outcome.status != TrialStatus::kOk)
    return Differs("status", NameOf(trial.status), NameOf(outcome.status));
  std::string wrong = WhatMetricsContradict(trial, outcome);
  if (!wrong.empty()) return wrong;
  if (!outcome.rounds.empty() && trial.rounds != outcome.rounds)  // steps give them, too
    return Differs("rounds", trial.rounds, outcome.rounds);
  if (trial.draws != outcome.draws) return Differs("draws", trial.draws, outcome.draws);
  for (const auto& [file, series] : outcome.series) {
    const auto found = trial.series.find(file);
    if (found == trial.series.end() || found->second != series)
      return fmt::format("series.{}: trial.json and outcome.json differ", file);
  }
  if (!outcome.layout.empty() && trial.layout != outcome.layout)
    return "layout: trial.json has other tensors than outcome.json";
  if (!trial.quiet && outcome.quiet)
    return "quiet: trial.json lacks the readings of its machine that outcome.json has";
  if (trial.schema < kTrialSchema) return "";
  for (const auto& [key, stored, given] :
       {std::tuple("quiet", ReadingsOf(trial.quiet), ReadingsOf(outcome.quiet)),
        {"checks", json(trial.checks), json(outcome.checks)},
        {"sampling", json(trial.sampling), json(outcome.sampling)},
        {"machine", trial.machine ? ToJson(*trial.machine) : json(),
         outcome.machine ? ToJson(*outcome.machine) : json()},
        {"software", trial.software ? ToJson(*trial.software) : json(),
         outcome.software ? ToJson(*outcome.software) : json()}}) {
    if (stored != given) return Differs(key, stored, given);
  }
  if (outcome.n && !IsProfile(trial))
    return fmt::format("outcome.json: n = {}: expected n in profiles and fingerprints alone",
                       *outcome.n);
  if (IsProfile(trial)) return WhatProfileContradicts(trial, outcome);
  wrong = WhatSecondsContradict(trial, outcome);
  return wrong.empty() ? WhatPlansContradict(trial, outcome) : wrong;
}

}  // namespace

std::string WhatFilesContradict(const BundledTrial& bundled) {
  const Trial& trial = bundled.trial;
  if (!HasNumbers(trial)) return "";
  const auto outcome = bundled.files.find("outcome.json");
  const bool is_there = outcome != bundled.files.end();
  if (trial.schema >= kTrialSchema) {
    std::set<std::string> listed(trial.files.begin(), trial.files.end()), there;
    for (const auto& [file, content] : bundled.files) {
      if (file != "trial.json") there.insert(file);
    }
    if (std::string wrong = WhatIdContradicts(trial); !wrong.empty()) return wrong;
    if (!is_there) return "it has no outcome.json: expected one for every trial that ended well";
    if (listed != there)
      return fmt::format("files: trial.json lists {}, and there are {}", fmt::join(listed, ", "),
                         fmt::join(there, ", "));
  }
  if (!is_there) return "";
  const json stored = json::parse(outcome->second);
  const bool earlier = trial.schema < kTrialSchema;
  return WhatOutcomeContradicts(trial,
                                OutcomeOf(earlier ? ReadableOfEarlierBundle(stored) : stored));
}

std::string OtherTrials::WhatContradicts(const BundledTrial& bundled) {
  const Trial& trial = bundled.trial;
  if (!HasNumbers(trial) || trial.schema < kTrialSchema || !IsLive(trial)) return "";
  const auto steps = bundled.files.find("steps.npy");
  std::optional<TrialSteps> own;
  if (steps != bundled.files.end()) own = ReadTrialSteps(steps->second);
  if (own) {
    std::string copied = steps_.WhatIsCopied(*own, trial.seed);
    if (!copied.empty()) return copied;
  }
  if (trial.launch) {
    const auto [found, is_first] =
        launches_.try_emplace({trial.origin, trial.launch->id},
                              OfLaunch{trial.trial_id, trial.started_utc, *trial.launch, 0});
    OfLaunch& launch = found->second;
    if (trial.started_utc != launch.started_utc)
      return fmt::format("started_utc: {}, and {} of the same launch began at {}",
                         trial.started_utc, launch.first, launch.started_utc);
    if (*trial.launch != launch.launch)
      return fmt::format("launch: {} of the same launch says otherwise", launch.first);
    if (++launch.trials > launch.launch.trials)
      return fmt::format("launch.trials: {}, and the bundle has more of {}", launch.launch.trials,
                         trial.launch->id);
  }
  if (own)
    steps_.Take(trial.trial_id, *std::move(own),
                [seed = trial.seed] { return std::optional(seed); });
  return "";
}

}  // namespace sparfuse::harness
