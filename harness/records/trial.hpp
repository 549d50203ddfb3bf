// Describes a trial: its trial.json, the outcome.json of its run, and the annotations of people.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/fusion/layout.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/launch.hpp"
#include "harness/records/machine.hpp"
#include "harness/records/names.hpp"
#include "harness/records/profile.hpp"

namespace sparfuse::harness {

class NpyTable;
class Scrubber;

// The form of a trial.json. It is raised if a later program would misread earlier trials, or if
// earlier trials contain facts that later ones keep in private.json. Earlier trials no longer
// count, and run again. Earlier trials that came in bundles have left such facts behind, and still
// count.
inline constexpr int kTrialSchema = 3;
inline constexpr int kTrialSchemaOfEarlierBundles = 2;

enum class TrialStatus : std::uint8_t { kOk, kFailed, kTimeout, kInvalid };

struct MetricValue {
  std::optional<double> value;  // nothing: it is not finite
  std::string unit;

  MetricValue() = default;
  MetricValue(double number, std::string unit);
  bool operator==(const MetricValue&) const = default;
};

struct Series {
  std::int64_t rows = 0;
  std::string sampling;                      // which rows they are
  std::map<std::string, std::string> units;  // by column
  bool operator==(const Series&) const = default;
};

Series SeriesOf(const NpyTable& table);

using MetricValues = std::map<std::string, MetricValue>;
using SeriesByFile = std::map<std::string, Series>;

struct Failure {
  std::string kind;  // FailureKindName
  std::optional<int> rank = {}, signal = {};
  std::string message = {}, log_tail = {};  // not in the record: in private.json (PrivateFacts)
  bool operator==(const Failure&) const = default;
};

struct LayoutTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  bool dense = false;
  bool operator==(const LayoutTensor&) const = default;
};

std::vector<LayoutTensor> LayoutOf(const GradientLayout& layout);

// The result: the part of an outcome that its trial takes over.
struct TrialResult {
  TrialStatus status = TrialStatus::kOk;
  std::optional<Failure> failure;
  MetricValues metrics;
  std::map<std::string, bool> checks;
  SeriesByFile series;
  std::optional<Machine> machine;
  std::optional<Software> software;
  std::optional<Quiet> quiet;
  std::vector<LayoutTensor> layout;  // in ready order
  std::string sampling;
  std::vector<double> rounds;                        // step_seconds of each
  std::map<std::string, std::vector<double>> draws;  // of metrics, once for every draw of inputs
  bool operator==(const TrialResult&) const = default;
};

// The outcome of rank 0, or of the model. JSON members have no fixed form, or a reader of their
// own.
struct Outcome : TrialResult {
  std::string reason;  // why it is invalid
  double turn_seconds = 0;
  std::string plan, selection;
  nlohmann::json plans, profile, fingerprint;
  std::map<std::string, std::int64_t> selection_counters;
  std::vector<std::string> assumed;
  std::optional<std::int64_t> n;
  nlohmann::json calibration, inputs, card, table;
  bool operator==(const Outcome&) const = default;
};

// The mode of results from others. It is not a mode of cells, so no such trial is a cell's. Their
// experiment has the same name.
inline constexpr std::string_view kImported = "imported";

// The configuration of a trial measured by others, instead of a cell's. Facts that a source does
// not state are absent.
struct OthersConfig {
  TrialKind kind = TrialKind::kThroughput;
  std::string mode = std::string(kImported);
  std::string metric, workload, method, sparsifier;
  int workers = 1;
  std::optional<double> density, network_gbps, target;
  std::optional<int> ranks_per_node, batch_per_worker;
};

// The source of a number from others, and the number as stated there.
struct ImportedFrom {
  std::string file, sha256, stated;
  double deviation = 0;                             // as stated, relative
  std::int64_t steps = 0;                           // of logs: lines
  double standard_error = 0;                        // of their median, relative
  std::vector<std::optional<double>> implied_gbps;  // least and most; nothing: any
  std::string doubt;
  bool operator==(const ImportedFrom&) const = default;
};

struct Trial : TrialResult {
  int schema = kTrialSchema;
  std::string trial_id, origin;
  std::string original_id;  // of an early trial that came in a bundle: its id on the machine that
                            // ran it
  int redaction = 0;        // of a trial that left this or another machine: the version of the
                            // scrubbing
  std::string experiment, part;
  int block = 0;
  std::int64_t seed = 0;
  // JSON, because its hash covers all keys: results of others have keys of their own.
  nlohmann::json config = nlohmann::json::object();
  std::string config_hash;
  System system;
  std::string system_hash;
  std::map<std::string, std::int64_t> revisions;
  std::map<std::string, std::string> sources;
  std::optional<SourceState> source;
  std::map<std::string, std::string> environment;  // that everybody may see
  std::optional<TrialLaunch> launch;
  std::optional<Fingerprint> fingerprint;  // of the system, when the run began
  std::optional<ImportedFrom> imported;
  std::string started_utc;
  double seconds = 0;
  std::vector<std::string> files;  // the directory's others
  bool operator==(const Trial&) const = default;
};

struct Annotation {
  std::string annotation_id, trial_id, reason, created_utc;
  int redaction = 0;
  bool operator==(const Annotation&) const = default;
};

nlohmann::json ToJson(const Trial& trial);
nlohmann::json ToJson(const Outcome& outcome);
nlohmann::json ToJson(const OthersConfig& config);
nlohmann::json ToJson(const ImportedFrom& imported);
nlohmann::json ToJson(const Annotation& annotation);
nlohmann::json ToJson(const MetricValues& metrics);
nlohmann::json ToJson(const SeriesByFile& series);

// All throw Error{kData} naming the file, the key, its value and the expected form. A trial is also
// refused if a value is impossible (a negative time), if its status contradicts its checks, if a
// key of its configuration has a value that cells, or results of others, do not have, or if
// config_hash is not the configuration's hash. Keys that are missing, or that no cell has, are left
// to hashes.
Trial TrialOf(const nlohmann::json& stored, std::string_view whole = "trial.json");
Outcome OutcomeOf(const nlohmann::json& stored, std::string_view whole = "outcome.json");
Annotation AnnotationOf(const nlohmann::json& stored, std::string_view whole = "annotation");

// Whether a program of an older schema wrote the trial.json, so that the trial does not count.
bool IsOlderTrial(const nlohmann::json& stored);

// Whether the trial left its machine in a bundle of version 1 or 2.
bool IsOfEarlierBundle(const nlohmann::json& stored);
// A trial or an outcome from an earlier bundle, without facts of its machine, launch and readings
// that fit no record. There keys were in a list, and values had any form.
nlohmann::json ReadableOfEarlierBundle(nlohmann::json stored);

// A configuration in the form in which it leaves: the keys of cells and of others' results, with
// scrubbed texts.
nlohmann::json ScrubbedConfig(const nlohmann::json& config, const Scrubber& scrubber);

// Throws Error{kData} if a text of a record, or the name of one of its keys, is no plain text
// (harness/files/plain_text.hpp). TrialOf and AnnotationOf look themselves.
void RequirePlainText(const nlohmann::json& stored, std::string_view whole);

// "" or the contradiction between config.json, with which a trial was started, and its trial.json.
// Throws as TrialOf for the values of its keys. whole: the name of config.json in errors.
std::string WhatConfigContradicts(const nlohmann::json& config, const nlohmann::json& trial,
                                  std::string_view whole);

}  // namespace sparfuse::harness
