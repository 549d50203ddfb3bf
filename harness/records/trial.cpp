#include "harness/records/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/files/canonical.hpp"
#include "harness/files/npy.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {

// Limits beyond any machine: 30 years, and a rate of 10^15 per second.
constexpr double kMostSeconds = 1e9, kMostRate = 1e15, kMostCount = 1e18;
constexpr double kMostBlock = 2147483647;

}  // namespace

template <>
std::span<const std::string> NamesOf<TrialStatus>() {
  static const std::vector<std::string> kNames = {"ok", "failed", "timeout", "invalid"};
  return kNames;
}

template <>
RecordKeys KeysOf<MetricValue>() {
  static constexpr auto kKeys =
      KeyTable<MetricValue>(Key<&MetricValue::value>({.name = "value"}),
                            Key<&MetricValue::unit>({.name = "unit", .leaves = Leaves::kOption}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Series>() {
  static constexpr auto kKeys =
      KeyTable<Series>(Key<&Series::rows>({.name = "rows", .range = {0, 1e12}}),
                       Key<&Series::sampling>({.name = "sampling", .leaves = Leaves::kWords}),
                       Key<&Series::units>({.name = "units"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<Failure>() {
  static constexpr auto kKeys =
      KeyTable<Failure>(Key<&Failure::kind>({.name = "kind", .leaves = Leaves::kOption}),
                        Key<&Failure::rank>({.name = "rank", .later = true}),
                        Key<&Failure::signal>({.name = "signal", .later = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<LayoutTensor>() {
  using L = LayoutTensor;
  static constexpr auto kKeys = KeyTable<L>(
      Key<&L::name>({.name = "name", .leaves = Leaves::kPlace}), Key<&L::shape>({.name = "shape"}),
      Key<&L::numel>({.name = "numel"}), Key<&L::dense>({.name = "dense"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<OthersConfig>() {
  using C = OthersConfig;
  static constexpr auto kKeys = KeyTable<C>(
      Key<&C::kind>({.name = "kind", .leaves = Leaves::kOption}),
      Key<&C::mode>({.name = "mode", .leaves = Leaves::kOption}),
      Key<&C::metric>({.name = "metric", .leaves = Leaves::kOption}),
      Key<&C::workload>({.name = "workload", .leaves = Leaves::kOption}),
      Key<&C::method>({.name = "method", .leaves = Leaves::kOption}),
      Key<&C::sparsifier>({.name = "sparsifier", .leaves = Leaves::kOption, .optional = true}),
      Key<&C::workers>({.name = "workers"}),
      Key<&C::density>({.name = "density", .optional = true}),
      Key<&C::network_gbps>({.name = "network_gbps", .unit = "Gbit/s", .optional = true}),
      Key<&C::target>({.name = "target", .optional = true}),
      Key<&C::ranks_per_node>({.name = "ranks_per_node", .optional = true}),
      Key<&C::batch_per_worker>({.name = "batch_per_worker", .optional = true}));
  return kKeys;
}

template <>
RecordKeys KeysOf<ImportedFrom>() {
  using I = ImportedFrom;
  static constexpr auto kKeys = KeyTable<I>(
      Key<&I::file>({.name = "file", .leaves = Leaves::kWords}),
      Key<&I::sha256>({.name = "sha256", .leaves = Leaves::kHash}),
      Key<&I::stated>({.name = "stated", .leaves = Leaves::kWords}),
      Key<&I::deviation>({.name = "deviation", .optional = true}),
      Key<&I::steps>({.name = "steps", .optional = true}),
      Key<&I::standard_error>({.name = "standard_error", .optional = true}),
      Key<&I::implied_gbps>({.name = "implied_gbps", .unit = "Gbit/s", .optional = true}),
      Key<&I::doubt>({.name = "doubt", .leaves = Leaves::kWords, .optional = true}));
  return kKeys;
}

namespace {

template <class Record>
constexpr auto KeysOfResult() {
  using R = TrialResult;
  return KeyTable<Record>(
      Key<&R::status, Record>({.name = "status"}), Key<&R::metrics, Record>({.name = "metrics"}),
      Key<&R::checks, Record>({.name = "checks", .later = true}),
      Key<&R::series, Record>({.name = "series", .optional = true}),
      Key<&R::machine, Record>({.name = "machine", .optional = true}),
      Key<&R::software, Record>({.name = "software", .optional = true}),
      Key<&R::quiet, Record>({.name = "quiet", .optional = true}),
      Key<&R::layout, Record>({.name = "layout", .optional = true}),
      Key<&R::sampling, Record>({.name = "sampling", .leaves = Leaves::kWords, .optional = true}),
      Key<&R::rounds, Record>({.name = "rounds", .unit = "seconds", .optional = true}),
      Key<&R::draws, Record>({.name = "draws", .unit = "seconds", .optional = true}));
}

// The system has a JSON form that differs from its table (node.cpp).
struct SystemOfTrial : Form<System> {
  static json Write(const System& system, const KeyInfo&, WrittenFor) { return ToJson(system); }
  static void Read(const json& from, const KeyInfo& info, const KeyPlace& place, System& system) {
    try {
      system = SystemOf(from, info.name);
    } catch (const Error& error) {
      place.Expected(from, fmt::format("a system ({})", error.what()));
    }
  }
};

struct ConfigOfTrial : Form<json> {
  static void Read(const json& from, const KeyInfo&, const KeyPlace& place, json& config) {
    if (!from.is_object()) place.Expected(from, "an object");
    config = from;
  }
  static void Scrub(json& config, Leaves, const Scrubber& scrubber) {
    config = ScrubbedConfig(config, scrubber);
  }
};

}  // namespace

template <>
RecordKeys KeysOf<Outcome>() {
  using O = Outcome;
  static constexpr auto kKeys = Joined(
      KeysOfResult<O>(),
      KeyTable<O>(
          Key<&O::reason>({.name = "reason", .leaves = Leaves::kWords, .optional = true}),
          Key<&O::turn_seconds>(
              {.name = "turn_seconds", .range = {0, kMostSeconds}, .optional = true}),
          Key<&O::plan>({.name = "plan", .optional = true}),
          Key<&O::plans>({.name = "plans", .leaves = Leaves::kOption, .optional = true}),
          Key<&O::profile>({.name = "profile", .leaves = Leaves::kOption, .optional = true}),
          Key<&O::fingerprint>({.name = "fingerprint", .optional = true}),
          Key<&O::selection>({.name = "selection", .leaves = Leaves::kOption, .optional = true}),
          Key<&O::selection_counters>({.name = "selection_counters", .optional = true}),
          Key<&O::assumed>({.name = "assumed", .optional = true}),
          Key<&O::n>({.name = "n", .optional = true}),
          Key<&O::calibration>({.name = "calibration", .optional = true}),
          Key<&O::inputs>({.name = "inputs", .optional = true}),
          Key<&O::card>({.name = "card", .optional = true}),
          Key<&O::table>({.name = "table", .optional = true})));
  return kKeys;
}

template <>
RecordKeys KeysOf<Trial>() {
  using T = Trial;
  static constexpr auto kKeys = Joined(
      Joined(KeyTable<T>(
                 Key<&T::schema>({.name = "schema"}),
                 Key<&T::trial_id>({.name = "trial_id", .leaves = Leaves::kPlace}),
                 Key<&T::original_id>(
                     {.name = "original_id", .leaves = Leaves::kPlace, .optional = true}),
                 Key<&T::origin>({.name = "origin", .leaves = Leaves::kHash, .optional = true}),
                 Key<&T::redaction>({.name = "redaction", .optional = true}),
                 Key<&T::experiment>({.name = "experiment", .leaves = Leaves::kPlace}),
                 Key<&T::part>({.name = "part", .leaves = Leaves::kPlace}),
                 Key<&T::block>({.name = "block", .range = {0, kMostBlock}}),
                 Key<&T::seed>({.name = "seed"})),
             KeysOfResult<T>()),
      KeyTable<T>(
          Key<&T::failure, T>({.name = "failure", .later = true}),
          Key<&T::config, T, ConfigOfTrial>({.name = "config", .type = "table"}),
          Key<&T::config_hash>({.name = "config_hash", .leaves = Leaves::kHash}),
          Key<&T::system, T, SystemOfTrial>({.name = "system", .optional = true}),
          Key<&T::system_hash>({.name = "system_hash", .leaves = Leaves::kHash}),
          Key<&T::revisions>({.name = "revisions"}),
          Key<&T::sources>({.name = "sources", .leaves = Leaves::kHash, .optional = true}),
          Key<&T::source>({.name = "source", .optional = true}),
          Key<&T::environment>({.name = "environment", .optional = true}),
          Key<&T::launch>({.name = "launch", .optional = true}),
          Key<&T::fingerprint>({.name = "fingerprint", .optional = true}),
          Key<&T::imported>({.name = "imported", .optional = true}),
          Key<&T::started_utc>({.name = "started_utc"}),
          Key<&T::seconds>({.name = "seconds", .range = {0, kMostSeconds}, .unit = "seconds"}),
          Key<&T::files>({.name = "files", .optional = true})));
  return kKeys;
}

template <>
RecordKeys KeysOf<Annotation>() {
  using A = Annotation;
  static constexpr auto kKeys =
      KeyTable<A>(Key<&A::annotation_id>({.name = "annotation_id", .leaves = Leaves::kPlace}),
                  Key<&A::trial_id>({.name = "trial_id", .leaves = Leaves::kPlace}),
                  Key<&A::reason>({.name = "reason", .leaves = Leaves::kWords}),
                  Key<&A::created_utc>({.name = "created_utc"}),
                  Key<&A::redaction>({.name = "redaction", .optional = true}));
  return kKeys;
}

namespace {

// The expected values of a metric of this name and unit; "" if `value` is possible.
std::string WhatIsExpected(std::string_view name, std::string_view unit, double value) {
  if (!std::isfinite(value)) return "a finite number";
  if (unit.ends_with("/s") || name == "throughput")
    return value > 0 && value <= kMostRate ? "" : "a rate above 0 and at most 1e15";
  if (name == "step_seconds")
    return value > 0 && value <= kMostSeconds ? "" : "seconds above 0 and at most 1e9";
  if (name == "other_seconds")  // a difference of medians
    return std::abs(value) <= kMostSeconds ? "" : "seconds, at most 1e9";
  if (unit == "s" || unit == "seconds")
    return value >= 0 && value <= kMostSeconds ? "" : "seconds from 0 to 1e9";
  for (const char* counted : {"bytes", "messages", "elements", "tensors", "exchanges"}) {
    if (unit == counted && (value < 0 || value > kMostCount)) return "a count from 0 to 1e18";
  }
  return "";
}

void CheckMetrics(const Trial& trial, const KeyPlace& whole) {
  const KeyPlace metrics(whole, "metrics");
  for (const auto& [name, metric] : trial.metrics) {
    if (!metric.value) continue;
    const KeyPlace place(metrics, name);
    const std::string expected = WhatIsExpected(name, metric.unit, *metric.value);
    if (!expected.empty())
      KeyPlace(place, "value").Expected(NumberAsWritten(*metric.value), expected);
  }
}

void CheckTimes(const Trial& trial, const KeyPlace& whole) {
  const auto positive = [](double seconds) { return seconds > 0; };
  if (!std::ranges::all_of(trial.rounds, positive))
    KeyPlace(whole, "rounds").Expected(trial.rounds, "numbers above 0");
  const KeyPlace draws(whole, "draws");
  for (const auto& [name, values] : trial.draws) {
    const bool good = values.size() == trial.draws.begin()->second.size() &&
                      std::ranges::all_of(
                          values, [](double value) { return value >= 0 && value <= kMostSeconds; });
    if (!good) KeyPlace(draws, name).Expected(values, "as many seconds as of the other metrics");
  }
  if (trial.launch && trial.launch->trials < 1) {
    const KeyPlace launch(whole, "launch");
    KeyPlace(launch, "trials").Expected(trial.launch->trials, "a number above 0");
  }
}

// The number of elements of a shape; nothing if no tensor can have it.
std::optional<std::int64_t> ElementsOf(const std::vector<std::int64_t>& shape) {
  double about = 1;
  std::int64_t elements = 1;
  for (const std::int64_t side : shape) {
    about *= static_cast<double>(side);
    if (side < 0 || about > kMostCount) return std::nullopt;
    elements *= side;
  }
  return elements;
}

void CheckLayout(const std::vector<LayoutTensor>& tensors, const KeyPlace& whole) {
  const KeyPlace layout(whole, "layout");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::optional<std::int64_t> elements = ElementsOf(tensors[i].shape);
    if (elements == tensors[i].numel) continue;
    const KeyPlace place(layout, std::to_string(i));
    if (!elements) KeyPlace(place, "shape").Expected(tensors[i].shape, "sides of a tensor");
    KeyPlace(place, "numel")
        .Expected(tensors[i].numel, fmt::format("{}, the elements of its shape", *elements));
  }
}

// Removes members of an earlier program's record whose form has changed, and sets missing ones to
// their initial values. needed: keys that must be present together or not at all.
template <class Record>
void KeepReadable(json& trial, const char* part, const std::vector<std::string>& needed) {
  const auto found = trial.find(part);
  if (found == trial.end() || !found->is_object()) return;
  const json initial = WriteRecord(Record());
  json readable = initial;
  for (const std::string& key : needed) {
    if (found->contains(key)) readable[key] = (*found)[key];
  }
  const auto is_readable = [&](const json& members) {
    try {
      Record record;
      ReadRecord(members, KeyPlace(part), record);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  if (!is_readable(readable)) readable = initial;
  for (const auto& [key, value] : found->items()) {
    json more = readable;
    more[key] = value;
    if (is_readable(more)) readable = std::move(more);
  }
  *found = std::move(readable);
}

template <class Record>
void CheckKeysThatAreThere(const KeyPlace& place, const json& config) {
  Record read;
  for (const RecordKey& key : KeysOf<Record>()) {
    const auto found = config.find(key.name);
    if (found != config.end()) key.Read(*found, KeyPlace(place, key.name), &read);
  }
}

void CheckConfigAt(const KeyPlace& place, const json& config) {
  if (config.value("mode", json()) == kImported) {
    CheckKeysThatAreThere<OthersConfig>(place, config);
  } else {
    CheckKeysThatAreThere<CellConfig>(place, config);
  }
}

void RequirePlainTextAt(const json& stored, const KeyPlace& place) {
  constexpr const char* kExpected = "text without control characters";
  if (stored.is_string() && !IsPlainText(stored.get_ref<const std::string&>()))
    place.Expected(stored, kExpected);
  if (stored.is_array()) {
    for (std::size_t i = 0; i < stored.size(); ++i)
      RequirePlainTextAt(stored[i], KeyPlace(place, std::to_string(i)));
  } else if (stored.is_object()) {
    for (const auto& [key, value] : stored.items()) {
      const KeyPlace at(place, key);
      if (!IsPlainText(key) || key.find('\n') != std::string::npos)
        at.Expected(value, "a key without control characters");
      RequirePlainTextAt(value, at);
    }
  }
}

void CheckTime(const std::string& utc, const KeyPlace& place, const char* key) {
  if (!IsUtcTime(utc)) KeyPlace(place, key).Expected(utc, "a time, as 2026-01-31T12:34:56.789Z");
}

void CheckTrial(const Trial& trial, const json& stored, const KeyPlace& place) {
  RequirePlainTextAt(stored, place);
  // A table of imported results may omit the time of a measurement.
  if (!trial.imported || !trial.started_utc.empty())
    CheckTime(trial.started_utc, place, "started_utc");
  for (const auto& [name, passed] : trial.checks) {
    if (trial.status == TrialStatus::kOk && !passed) {
      KeyPlace(place, "status")
          .Expected("ok", fmt::format("\"invalid\", for check {} failed", name));
    }
  }
  CheckMetrics(trial, place);
  CheckTimes(trial, place);
  CheckLayout(trial.layout, place);
  CheckConfigAt(KeyPlace(place, "config"), trial.config);
  if (trial.config_hash != ConfigHash(stored.at("config")))
    KeyPlace(place, "config_hash").Expected(trial.config_hash, "the hash of config");
  const auto system = stored.find("system");
  if (system != stored.end() && trial.system_hash != ContentHash(*system))
    KeyPlace(place, "system_hash").Expected(trial.system_hash, "the hash of system");
}

}  // namespace

MetricValue::MetricValue(double number, std::string of) : unit(std::move(of)) {
  if (std::isfinite(number)) value = number;
}

std::vector<LayoutTensor> LayoutOf(const GradientLayout& layout) {
  std::vector<LayoutTensor> tensors;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorEntry& tensor = layout.tensor(t);
    tensors.push_back(
        {tensor.name, tensor.shape, static_cast<std::int64_t>(tensor.numel), tensor.dense});
  }
  return tensors;
}

Series SeriesOf(const NpyTable& table) {
  return {static_cast<std::int64_t>(table.rows()), table.sampling(), table.Units()};
}

json ToJson(const Trial& trial) { return WriteRecord(trial); }

json ToJson(const Outcome& outcome) { return WriteRecord(outcome); }

json ToJson(const OthersConfig& config) { return WriteRecord(config); }

json ToJson(const ImportedFrom& imported) { return WriteRecord(imported); }

json ToJson(const Annotation& annotation) { return WriteRecord(annotation); }

json ToJson(const MetricValues& metrics) {
  return Form<MetricValues>::Write(metrics, {}, WrittenFor::kFile);
}
json ToJson(const SeriesByFile& series) {
  return Form<SeriesByFile>::Write(series, {}, WrittenFor::kFile);
}

Trial TrialOf(const json& stored, std::string_view whole) {
  const KeyPlace place(whole);
  if (!stored.is_object()) place.Expected(stored, "an object");
  const bool earlier = IsOfEarlierBundle(stored);
  const json schema = stored.value("schema", json());
  if (schema != kTrialSchema && !earlier) {
    KeyPlace(place, "schema")
        .Expected(schema, fmt::format("{}, which this sparfuse writes", kTrialSchema));
  }
  Trial trial;
  ReadRecord(earlier ? ReadableOfEarlierBundle(stored) : stored, place, trial);
  CheckTrial(trial, stored, place);
  return trial;
}

Outcome OutcomeOf(const json& stored, std::string_view whole) {
  return RecordOf<Outcome>(stored, whole);
}

Annotation AnnotationOf(const json& stored, std::string_view whole) {
  Annotation annotation = RecordOf<Annotation>(stored, whole);
  RequirePlainText(stored, whole);
  CheckTime(annotation.created_utc, KeyPlace(whole), "created_utc");
  return annotation;
}

void RequirePlainText(const json& stored, std::string_view whole) {
  RequirePlainTextAt(stored, KeyPlace(whole));
}

bool IsOfEarlierBundle(const json& stored) {
  return stored.is_object() && stored.value("schema", json()) == kTrialSchemaOfEarlierBundles &&
         stored.contains("redaction");
}

json ReadableOfEarlierBundle(json stored) {
  KeepReadable<Machine>(stored, "machine", {});
  KeepReadable<Software>(stored, "software", {});
  KeepReadable<Quiet>(stored, "quiet", {"limits", "slowdown", "disturbed", "causes", "why"});
  KeepReadable<TrialLaunch>(stored, "launch", {"id", "trials"});
  KeepReadable<Fingerprint>(stored, "fingerprint", {});
  return stored;
}

bool IsOlderTrial(const json& stored) {
  if (!stored.is_object() || IsOfEarlierBundle(stored)) return false;
  const json schema = stored.value("schema", json());
  return schema.is_number_integer() && schema < kTrialSchema;
}

std::string WhatConfigContradicts(const json& config, const json& trial, std::string_view whole) {
  if (!SaysTheSame(config, trial["config"])) {
    const KeyPlace place(whole);
    if (!config.is_object()) place.Expected(config, "an object");
    CheckConfigAt(place, config);
    if (const std::string hash = ConfigHash(config); trial["config_hash"] != hash) {
      return fmt::format(
          "config_hash: trial.json has {:.12}, and the hash of config.json is {:.12}",
          trial["config_hash"].get<std::string>(), hash);
    }
  }
  for (const char* key : {"block", "seed"}) {
    const auto found = config.find(key);
    if (found != config.end() && trial[key] != *found) {
      return fmt::format("{}: trial.json has {}, config.json has {}", key, Shown(trial[key]),
                         Shown(*found));
    }
  }
  return "";
}

json ScrubbedConfig(const json& config, const Scrubber& scrubber) {
  static const std::map<std::string, Leaves> kKeys = [] {
    std::map<std::string, Leaves> keys;
    for (const KeyInfo& key : KeysOf<CellConfig>()) keys.emplace(key.name, key.leaves);
    for (const KeyInfo& key : KeysOf<OthersConfig>()) keys.emplace(key.name, key.leaves);
    return keys;
  }();
  json scrubbed = json::object();
  for (const auto& [name, value] : config.items()) {
    const auto key = kKeys.find(name);
    if (key == kKeys.end()) continue;
    json leaves = value;
    Form<json>::Scrub(leaves, key->second, scrubber);
    scrubbed[name] = std::move(leaves);
  }
  return scrubbed;
}

}  // namespace sparfuse::harness
