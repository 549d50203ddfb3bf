#include "harness/store/trial_row.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <tuple>

#include "harness/files/canonical.hpp"
#include "harness/machine/binding.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/store/users/private_names.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::array kStatuses = {"ok", "failed", "timeout", "invalid"};
// Beyond what any machine gives: 30 years, and a rate of 10^15 a second.
constexpr double kMostSeconds = 1e9, kMostRate = 1e15, kMostCount = 1e18;

const json& Member(const json& object, const char* key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string TextOf(const json& object, const char* key) {
  const json& value = Member(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}

// The digits that end a trial's id: 11 of "...-b0-11".
std::uint64_t RunningNumber(const std::string& id) {
  const std::size_t first = id.find_last_not_of("0123456789") + 1;
  return first == id.size() ? 0 : std::strtoull(id.c_str() + first, nullptr, 10);
}

// Of the launch, what the trials of a cell share: they then have one text. The directory of the
// trial is its id.
json SharedArguments(const json& argv) {
  json shared = json::array();
  if (!argv.is_array()) return shared;
  for (const json& argument : argv) {
    const std::string text = argument.is_string() ? argument.get<std::string>() : argument.dump();
    if (!text.starts_with('/')) {
      shared.push_back(text);
    } else if (&argument != &argv.back()) {
      shared.push_back(text.substr(text.rfind('/') + 1));
    }
  }
  return shared;
}

// Of how many cores each rank might use, in ascending order: "2", "2 or 4".
std::string CoresOfRanks(const json& binding) {
  std::set<std::size_t> counts;
  for (const json& cores : Member(binding, "cores")) {
    if (cores.is_string()) counts.insert(ReadRanges(cores.get<std::string>()).size());
  }
  return fmt::format("{}", fmt::join(counts, " or "));
}

// What of a launch may differ from trial to trial of a cell, and its nodes.
void AddLaunch(const json& launch, json& provenance) {
  if (const json& nodes = Member(launch, "nodes"); nodes.is_array()) provenance["nodes"] = nodes;
  if (json hosts = HostsOfLaunch(launch); !hosts.empty()) provenance["hosts"] = std::move(hosts);
  const json& network = Member(launch, "network");
  if (Member(network, "hosts").size() > 1) {
    const json& interface = Member(network, "interface");
    provenance["launch"]["interface"] =
        interface.is_string() ? interface : json("as libraries choose");
  }
  if (const std::string cores = CoresOfRanks(Member(launch, "binding")); !cores.empty())
    provenance["launch"]["cores_a_rank"] = cores;
}

StoredJson ProvenanceIn(const json& trial) {
  json provenance;
  for (const char* key : {"software", "source", "sources", "environment", "machine", "sampling"}) {
    provenance[key] = Member(trial, key);
  }
  AddLaunch(Member(trial, "launch"), provenance);
  if (const json& taken = Member(trial, "fingerprint"); taken.is_object())
    provenance["fingerprint"] = taken;
  if (const json& imported = Member(trial, "imported"); !imported.is_null())
    provenance["imported"] = imported;
  provenance["argv"] = SharedArguments(Member(trial, "argv"));
  return provenance;
}

// What is wrong with a metric of this name and unit; "" where nothing is.
std::string WhatIsWrongWithValue(std::string_view name, std::string_view unit, double value) {
  const auto expected = [&](const char* what) {
    return fmt::format("metrics: {} = {}: expected {}", name, value, what);
  };
  if (!std::isfinite(value)) return expected("a finite number");
  if (unit.ends_with("/s") || name == "throughput") {
    return value > 0 && value <= kMostRate ? "" : expected("a rate above 0 and at most 1e15");
  }
  if (name == "step_seconds") {
    return value > 0 && value <= kMostSeconds ? "" : expected("seconds above 0 and at most 1e9");
  }
  if (name == "other_seconds") {  // a difference of medians
    return std::abs(value) <= kMostSeconds ? "" : expected("seconds, at most 1e9");
  }
  if (unit == "s" || unit == "seconds") {
    return value >= 0 && value <= kMostSeconds ? "" : expected("seconds from 0 to 1e9");
  }
  for (const char* counted : {"bytes", "messages", "elements", "tensors", "exchanges"}) {
    if (unit == counted && (value < 0 || value > kMostCount))
      return expected("a count from 0 to 1e18");
  }
  return "";
}

std::string WhatIsWrongWithMetrics(const json& metrics) {
  for (const auto& [name, metric] : metrics.items()) {
    const json& value = Member(metric, "value");
    if (value.is_null()) continue;
    if (!value.is_number()) return "metrics: " + name + ": expected a number";
    if (const json& unit = Member(metric, "unit"); !unit.is_null() && !unit.is_string())
      return "metrics: " + name + ": expected the unit as a string";
    const std::string wrong =
        WhatIsWrongWithValue(name, TextOf(metric, "unit"), value.get<double>());
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string WhatIsWrongWithNumbers(const json& trial) {
  const json& seconds = trial["seconds"];
  if (!(seconds >= 0 && seconds <= kMostSeconds))
    return fmt::format("seconds = {}: expected 0 to 1e9", seconds.dump());
  const json& block = trial["block"];
  if (!block.is_number_integer() || block < 0 || block > std::numeric_limits<int>::max())
    return fmt::format("block = {}: expected an integer from 0 to 2147483647", block.dump());
  if (!trial["seed"].is_number_integer()) return "seed: expected an integer";
  for (const auto& [name, revision] : trial["revisions"].items()) {
    if (!revision.is_number_integer())
      return fmt::format("revisions: {}: expected an integer", name);
  }
  return WhatIsWrongWithMetrics(trial["metrics"]);
}

std::string WhatIsWrongWithChecks(const json& trial) {
  const std::string status = trial["status"];
  if (std::find(kStatuses.begin(), kStatuses.end(), status) == kStatuses.end()) {
    return fmt::format("status = \"{}\": expected one of {}", status, fmt::join(kStatuses, ", "));
  }
  for (const auto& [name, passed] : trial["checks"].items()) {
    if (!passed.is_boolean()) return fmt::format("checks: {}: expected true or false", name);
    if (status == "ok" && !passed.get<bool>())
      return fmt::format("status = \"ok\": expected \"invalid\", for check {} failed", name);
  }
  return "";
}

// In how a trial was launched, which modelled trials and those of earlier versions do not have.
std::string WhatIsWrongWithLaunch(const json& trial) {
  const json& launch = Member(trial, "launch");
  const json& rounds = Member(trial, "rounds");
  const json& trials = Member(launch, "trials");
  const json& start = Member(launch, "start_seconds");
  if (!launch.is_null() && !(Member(launch, "id").is_string() && trials.is_number_integer() &&
                             trials > 0 && (start.is_null() || start.is_number()))) {
    return "launch: expected an id, the number of its trials, and perhaps start_seconds";
  }
  const bool good = rounds.is_array() && std::ranges::all_of(rounds, [](const json& seconds) {
                      return seconds.is_number() && seconds > 0;
                    });
  if (!rounds.is_null() && !good) return "rounds: expected a list of numbers above 0";
  const json& draws = Member(trial, "draws");
  const bool drawn = draws.is_object() && std::ranges::all_of(draws, [&](const json& values) {
                       return values.is_array() && values.size() == draws.begin()->size() &&
                              std::ranges::all_of(values, [](const json& value) {
                                return value.is_number() && value >= 0 && value <= kMostSeconds;
                              });
                     });
  if (draws.is_null() || drawn) return "";
  return "draws: expected lists of as many seconds, one a metric";
}

bool IsNumberOrNull(const json& value) { return value.is_null() || value.is_number(); }

// In what was measured of the system beside the trial.
std::string WhatIsWrongWithFingerprint(const json& trial) {
  const json& fingerprint = Member(trial, "fingerprint");
  if (fingerprint.is_null()) return "";
  const json& quantities = Member(fingerprint, "quantities");
  if (!quantities.is_object()) return "fingerprint: expected an object with quantities";
  for (const auto& [name, quantity] : quantities.items()) {
    const json& worst = Member(quantity, "worst");
    const json& ranks = Member(worst, "ranks");
    bool good =
        worst.is_null() ||
        (Member(worst, "value").is_number() && ranks.is_array() && !ranks.empty() &&
         std::ranges::all_of(ranks, [](const json& rank) { return rank.is_number_integer(); }));
    for (const char* key : {"value", "low", "high"})
      good = good && Member(quantity, key).is_number();
    if (!good || !IsNumberOrNull(Member(quantity, "n")))
      return fmt::format("fingerprint: {}: expected the numbers value, low and high", name);
  }
  return "";
}

}  // namespace

void to_json(json& to, const RowLaunch& launch) {
  to = {{"id", launch.id},
        {"trials", launch.trials},
        {"start_seconds", launch.start_seconds},
        {"rounds", launch.rounds},
        {"draws", launch.draws}};
}

void from_json(const json& from, RowLaunch& launch) {
  launch.id = TextOf(from, "id");
  launch.trials = from.value("trials", std::size_t{1});
  launch.start_seconds = from.value("start_seconds", 0.0);
  launch.rounds = from.value("rounds", std::vector<double>());
  launch.draws = from.value("draws", decltype(launch.draws)());
}

bool TrialRow::disturbed() const { return Member(quiet, "disturbed") == true; }

std::string TrialRow::WhyDisturbed() const { return disturbed() ? TextOf(quiet, "why") : ""; }

TrialRow RowOf(const json& trial) {
  TrialRow row;
  row.trial_id = trial["trial_id"];
  row.experiment = trial["experiment"];
  row.part = trial["part"];
  const json& config = trial["config"];
  row.kind = TextOf(config, "kind");
  row.mode = TextOf(config, "mode");
  row.method = TextOf(config, "method");
  row.workload = TextOf(config, "workload");
  if (const json& workers = Member(config, "workers"); workers.is_number_integer())
    row.workers = workers.get<int>();
  row.config_hash = trial["config_hash"];
  row.system_hash = trial["system_hash"];
  row.original_id = TextOf(trial, "original_id");
  if (row.original_id.empty()) row.origin = TextOf(trial, "origin");
  row.status = trial["status"];
  const json& failure = Member(trial, "failure");
  row.failure_kind = TextOf(failure, "kind");
  row.failure_message = TextOf(failure, "message");
  row.log_tail = TextOf(failure, "log_tail");
  row.directory = "trials/" + row.trial_id;
  row.started_utc = trial["started_utc"];
  row.block = trial["block"];
  row.seed = trial["seed"];
  row.seconds = trial["seconds"];
  row.config = StoredJson(config);
  row.system = StoredJson(Member(trial, "system"));
  row.provenance = ProvenanceIn(trial);
  row.quiet = StoredJson(Member(trial, "quiet"));
  if (const json& launch = Member(trial, "launch"); launch.is_object())
    row.launch = launch.get<RowLaunch>();
  if (const json& rounds = Member(trial, "rounds"); rounds.is_array())
    row.launch.rounds = rounds.get<std::vector<double>>();
  if (const json& draws = Member(trial, "draws"); draws.is_object())
    row.launch.draws = draws.get<decltype(row.launch.draws)>();
  row.revisions = StoredJson(trial["revisions"]);
  for (const auto& [name, metric] : trial["metrics"].items()) {
    const json& value = Member(metric, "value");
    if (value.is_null()) continue;
    row.metrics.Set(name, value.get<double>());
    row.units.Set(name, TextOf(metric, "unit"));
  }
  for (const auto& [name, passed] : trial["checks"].items())
    (passed.get<bool>() ? row.checks : row.failed_checks).push_back(name);
  return row;
}

int HostsOf(const TrialRow& trial) {
  std::set<std::string> hosts;
  for (const json& host : Member(Member(trial.provenance, "machine"), "placement"))
    hosts.insert(host.dump());
  return static_cast<int>(hosts.size());
}

bool RanAlike(const TrialRow& one, const TrialRow& other) {
  const int hosts = HostsOf(one), others = HostsOf(other);
  return hosts == 0 || others == 0 || hosts == others;
}

void SortByAge(std::vector<TrialRow>& rows) {
  std::sort(rows.begin(), rows.end(), [](const TrialRow& a, const TrialRow& b) {
    if (a.started_utc != b.started_utc) return a.started_utc < b.started_utc;
    return std::make_tuple(RunningNumber(a.trial_id), std::string_view(a.trial_id)) <
           std::make_tuple(RunningNumber(b.trial_id), std::string_view(b.trial_id));
  });
}

bool IsOlderTrial(const json& trial) {
  const json& schema = Member(trial, "schema");
  return schema.is_number_integer() && schema < kTrialSchema;
}

std::string WhatIsWrongWithTrial(const json& trial) {
  if (!trial.is_object()) return "not an object";
  if (Member(trial, "schema") != kTrialSchema) {
    return fmt::format("schema: expected {}", kTrialSchema);
  }
  for (const char* key :
       {"trial_id", "experiment", "part", "status", "config_hash", "system_hash", "started_utc"}) {
    if (!Member(trial, key).is_string()) return fmt::format("{}: expected a string", key);
  }
  for (const char* key : {"config", "metrics", "checks", "revisions"}) {
    if (!Member(trial, key).is_object()) return fmt::format("{}: expected an object", key);
  }
  for (const char* key : {"block", "seed", "seconds"}) {
    if (!Member(trial, key).is_number()) return fmt::format("{}: expected a number", key);
  }
  if (const std::string wrong = WhatIsWrongWithChecks(trial); !wrong.empty()) return wrong;
  if (const std::string wrong = WhatIsWrongWithNumbers(trial); !wrong.empty()) return wrong;
  if (trial["config_hash"] != ConfigHash(trial["config"])) {
    return "config_hash: it is not the hash of config";
  }
  if (const std::string wrong = WhatIsWrongWithFingerprint(trial); !wrong.empty()) return wrong;
  return WhatIsWrongWithLaunch(trial);
}

}  // namespace sparfuse::harness
