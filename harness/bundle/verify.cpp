#include "harness/bundle/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "harness/bundle/bundled_trial.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// Whether a trial that ran should have readings of its machine's quietness.
bool ShouldHaveReadings(const Trial& trial) {
  return trial.schema >= kTrialSchema && HasNumbers(trial) && !trial.quiet &&
         trial.config.value("mode", json()) != NameOf(Mode::kModelled);
}

// Rows of a table that readable trials can confirm.
struct HeldRows {
  std::map<std::string, json> rows;  // by their trials
  std::set<std::string> left_out;    // cells of rows with an unreadable trial
};

std::string CellOf(const json& row) {
  return json{row.at("experiment"), row.at("part"), row.at("config"), row.at("revisions")}.dump();
}

HeldRows RowsToHold(const json& table, const std::set<std::string>& unreadable) {
  HeldRows held;
  for (json row : table) {
    std::set<std::string> trials;
    for (const json& id : row.at("trials")) trials.insert(id.get<std::string>());
    for (const auto& [id, why] : row.at("set_aside").items()) trials.insert(id);
    if (std::ranges::any_of(trials, [&](const auto& id) { return unreadable.contains(id); })) {
      held.left_out.insert(CellOf(row));
      continue;
    }
    // The system's name and the order of blocks tell stores apart, of which one may be unreadable.
    row.erase("system");
    row.erase("trials");
    const std::string key = fmt::format("{}", fmt::join(trials, " "));
    if (!held.rows.emplace(key, std::move(row)).second)
      SPARFUSE_THROW(kData, fmt::format("table.json: two rows of {}", key));
  }
  return held;
}

// "" or how the table of a bundle differs from the table of its readable trials.
std::string WhatTableContradicts(const json& stored, const json& made,
                                 const std::set<std::string>& unreadable) {
  if (unreadable.empty()) return FirstDifference(stored, made);
  const HeldRows said = RowsToHold(stored, unreadable), given = RowsToHold(made, {});
  for (const auto& [trials, row] : given.rows) {
    const auto found = said.rows.find(trials);
    // In place of an unreadable trial, another trial makes the row.
    if (found == said.rows.end() && said.left_out.contains(CellOf(row))) continue;
    if (found == said.rows.end()) return fmt::format("table.json: it has no row of {}", trials);
    const std::string difference = FirstDifference(found->second, row);
    if (!difference.empty()) return difference;
  }
  for (const auto& [trials, row] : said.rows) {
    if (!given.rows.contains(trials))
      return fmt::format("table.json: a row of {} that does not follow from its trials", trials);
  }
  return "";
}

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
  const json backward = MemberIn(outcome.profile, "backward");
  for (const auto& [metric, key] : {std::pair("forward_seconds", "forward_seconds"),
                                    {"backward_seconds", "unhooked_seconds"},
                                    {"update_seconds", "update_seconds"}}) {
    const auto said = trial.metrics.find(metric);
    if (said == trial.metrics.end() || !said->second.value)
      return fmt::format("metrics: expected {} of a profile", metric);
    if (!AreEqual(*said->second.value, NumberOf(backward, key)))
      return SaidAndGiven(metric, *said->second.value, MemberIn(backward, key),
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
        "trial_id: {}: expected one that begins with {} and ends with {}-N, of its experiment, "
        "part and block",
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

// "" or the contradiction between the trial and its files: another list of files, a number that
// differs from outcome.json (from which a run makes its trial), or a missing outcome.json.
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

// Compares the trials of one bundle with each other.
class OtherTrials {
 public:
  // "" or the contradiction between the trial and one that was checked before. Trials of one launch
  // began together on the same hosts, and are no more than the launch says. No trial has the steps
  // of another (KnownSteps). If there is no contradiction, later trials are checked against this
  // one, too.
  std::string WhatContradicts(const BundledTrial& bundled);

 private:
  struct OfLaunch {
    std::string first, started_utc;
    TrialLaunch launch;
    int trials = 0;
  };
  std::map<std::pair<std::string, std::string>, OfLaunch> launches_;  // by origin and id
  KnownSteps steps_;
};

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

}  // namespace

Verification Verify(const Bundle& bundle) {
  Verification made;
  const BundleContent& content = bundle.content();
  const std::string file = bundle.path().string();
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& [id, hash] : content.annotations) {
    try {
      const Annotation annotation = bundle.Annotation(id);
      reasons[annotation.trial_id].push_back(annotation.reason);
    } catch (const Error& error) {
      made.problems.push_back(error.what());
    }
  }
  std::vector<TrialRow> readable;
  std::set<std::string> unreadable;
  OtherTrials others;
  Patience patience;
  std::size_t done = 0;
  for (const auto& [id, hashes] : content.trials) {
    patience.Note(done++, "trials read", content.trials.size());
    try {
      const BundledTrial trial = bundle.Trial(id);
      TrialRow& row = readable.emplace_back(RowOf(trial.trial));
      if (const auto found = reasons.find(id); found != reasons.end())
        row.annotations = found->second;
      const Recomputed numbers = RecomputeMetrics(trial.trial, trial.files);
      made.trials[id] = {hashes, numbers.steps};
      const bool has_numbers = HasNumbers(trial.trial);
      (numbers.steps ? made.of_steps : has_numbers ? made.without_steps : made.without_numbers)++;
      made.of_evaluations += numbers.evaluated;
      made.of_earlier_form += has_numbers && trial.trial.schema < kTrialSchema;
      made.without_readings += ShouldHaveReadings(trial.trial);
      if (numbers.steps) {
        for (const auto& [fact, why] : numbers.unchecked) ++made.unchecked[{why, fact}];
        for (const std::string& column : numbers.columns_of_nothing)
          ++made.unchecked_columns[column];
      }
      std::string differs = numbers.differs;
      if (differs.empty()) differs = WhatFilesContradict(trial);
      if (differs.empty()) differs = others.WhatContradicts(trial);
      if (differs.empty()) {
        made.rows.push_back(row);
      } else {
        made.refused[id] = fmt::format("{}: trials/{}: {}", file, id, differs);
      }
    } catch (const Error& error) {
      unreadable.insert(id);
      made.refused[id] = error.what();
    }
  }
  for (const auto& [id, why] : made.refused) made.problems.push_back(why);
  made.table = TableOfTrials(std::move(readable), bundle.version());
  try {
    const std::string difference = WhatTableContradicts(bundle.Table(), made.table, unreadable);
    if (!difference.empty()) made.table_differs = fmt::format("{}: {}", file, difference);
  } catch (const Error& error) {
    made.table_differs = fmt::format("{}: {}", file, error.what());
  } catch (const json::exception&) {
    made.table_differs = file + ": table.json: expected the rows that `export` writes";
  }
  if (!made.table_differs.empty()) made.problems.push_back(made.table_differs);
  return made;
}

std::span<const std::string> KeysThatNothingTells() {
  static const std::vector<std::string> kKeys = [] {
    std::vector<std::string> keys = {
        "started_utc",
        "seed",
        "revisions",
        "sources",
        "source",
        "software",
        "environment",
        "quiet",
        "machine.cores",
        "machine.communication_threads",
        "machine.kernels",
        "machine.cuda_devices",
        "system.cores",
        "system.kernel",
        "launch.nodes.*.cores",
        "launch.nodes.*.network",
        "launch.id",
        "launch.binding.cores",
        "launch.binding.numa",
        "launch.binding.interface",
        "launch.network",
        "launch.clocks",
        "outcome.json.selection_counters",
        "outcome.json.plans",
        "outcome.json.profile",
        "redaction",
    };
    // Keys of the cell that steps, tensors and revisions confirm.
    const std::set<std::string> shown = {"kind",       "method",           "workload",
                                         "workers",    "batch_per_worker", "density",
                                         "sparsifier", "accumulation",     "dense_tensors"};
    const json config = ToJson(CellConfig());
    for (const auto& [key, value] : config.items()) {
      if (!shown.contains(key)) keys.push_back("config." + key);
    }
    return keys;
  }();
  return kKeys;
}

std::vector<std::string> WhatIsNotChecked(const Verification& verification) {
  std::vector<std::string> said;
  const std::size_t all =
      verification.of_steps + verification.without_steps + verification.without_numbers;
  if (verification.without_steps > 0)
    said.push_back(
        fmt::format("{} of {} trials without steps: not checked", verification.without_steps, all));
  if (verification.of_earlier_form > 0)
    said.push_back(
        fmt::format("{} of {} trials have the form of earlier bundles: only the metrics of their "
                    "steps are checked",
                    verification.of_earlier_form, all));
  // Facts that lack evidence for one reason, in equally many trials, share a sentence.
  std::map<std::pair<std::string, std::size_t>, std::vector<std::string>> facts;
  for (const auto& [fact, trials] : verification.unchecked)
    facts[{fact.first, trials}].push_back(fact.second);
  for (const auto& [of, names] : facts) {
    said.push_back(fmt::format("{} of {} trials: {}, not checked", fmt::join(names, ", "),
                               of.second, of.first));
  }
  // Unchecked columns of a file in equally many trials share a sentence.
  std::map<std::pair<std::string, std::size_t>, std::vector<std::string>> columns;
  for (const auto& [column, trials] : verification.unchecked_columns) {
    const std::size_t end = column.find(": ");
    columns[{column.substr(0, end), trials}].push_back(column.substr(end + 2));
  }
  for (const auto& [of, names] : columns) {
    said.push_back(
        fmt::format("{}: {} of {} trials: rows that no metric is made from are not checked",
                    of.first, fmt::join(names, ", "), of.second));
  }
  if (verification.without_readings > 0)
    said.push_back(
        fmt::format("{} of {} trials without readings of their machine: whether they were "
                    "disturbed is not known",
                    verification.without_readings, all));
  return said;
}

namespace {

constexpr std::size_t kFewestRows = 8;  // fewer may agree by chance

// Clocks count nanoseconds, and steps differ by parts of a thousand at least.
bool AreOneTime(double a, double b) {
  constexpr double kLastDigits = 1e-6;
  return std::abs(a - b) <= kLastDigits * std::max(std::abs(a), std::abs(b));
}

bool Differ(const std::vector<double>& losses) {
  return std::ranges::any_of(losses, [&](double loss) { return loss != losses.front(); });
}

}  // namespace

std::optional<TrialSteps> ReadTrialSteps(std::string_view bytes) {
  OpenSeries open;
  open.bytes = bytes;
  if (!WhatIsWrongWithSeries("steps.npy", bytes, &open.header).empty() || open.header.rows == 0)
    return std::nullopt;
  TrialSteps steps;
  steps.sha256 = Sha256Hex(bytes);
  for (std::uint64_t row = 0; row < open.header.rows; ++row) {
    steps.seconds.push_back(open.Value("step_seconds", row));
    steps.losses.push_back(open.Value("loss", row));
  }
  return steps;
}

void KnownSteps::Take(std::string id, TrialSteps steps,
                      std::function<std::optional<std::int64_t>()> seed) {
  const std::size_t rows = steps.seconds.size();
  by_rows_.emplace(rows, Known{std::move(id), std::move(steps), std::move(seed)});
}

std::string KnownSteps::WhatIsCopied(const TrialSteps& steps, std::int64_t seed) const {
  const std::size_t rows = steps.seconds.size();
  const auto [begin, end] = by_rows_.equal_range(rows);
  for (auto other = begin; other != end; ++other) {
    const Known& known = other->second;
    if (known.steps.sha256 == steps.sha256)
      return fmt::format("steps.npy: it equals the steps.npy of {} to the last bit", known.id);
    if (rows >= kFewestRows && std::ranges::equal(known.steps.seconds, steps.seconds, AreOneTime))
      return fmt::format("steps.npy: all of its times equal the times of {} to a millionth",
                         known.id);
    if (known.steps.losses != steps.losses || !Differ(steps.losses)) continue;
    const std::optional<std::int64_t> of_other = known.seed();
    if (of_other && *of_other != seed)
      return fmt::format("steps.npy: all of its losses equal the losses of {}, which has seed {}",
                         known.id, *of_other);
  }
  return "";
}

}  // namespace sparfuse::harness
