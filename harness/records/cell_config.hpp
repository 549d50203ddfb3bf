// Holds the configuration of a trial: a struct inside the program, JSON in its files.
//
// A cell's configuration has every default resolved; profile trials have the keys of their
// measurement in the place of the method's. Every key is always written.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/options.hpp"
#include "harness/records/names.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

// kFingerprint: of a launch that is no trial (harness/run/fingerprint).
enum class TrialKind : std::uint8_t { kThroughput, kConvergence, kProfile, kFingerprint };
enum class Mode : std::uint8_t { kMeasured, kEmulated, kModelled };
enum class Transport : std::uint8_t { kMpi, kThreads, kNccl, kTcp };
enum class Place : std::uint8_t { kCpu, kCuda };
using workloads::Precision;

struct LinkShape {
  double gbps = 0;  // of a node's card
  double alpha_us = 0;
  // The host's time to prepare an exchange. Preparations follow one another, in parallel with the
  // network (StepScheduler).
  double host_us = 0;
  // Of a rank's link to others of its node. 0: not given; each node has one rank.
  double intra_node_gbps = 0;
  double intra_node_us = 0;

  bool has_within() const { return intra_node_gbps > 0; }
  LinkShape WithoutHost() const {
    LinkShape link = *this;
    link.host_us = 0;
    return link;
  }
  bool operator==(const LinkShape&) const = default;
};

struct DenseTensors {
  std::int64_t max_ndim = 0;
  std::vector<std::string> names;
  bool operator==(const DenseTensors&) const = default;
};

inline constexpr std::size_t kDataIdDigits = 16;

// The composition of a method in one trial, with defaults resolved.
struct MethodChoice {
  std::string strategy, planner, collective;
  Options strategy_options, planner_options, collective_options;
  Options sending;  // of SendingOptions()

  // The quantizer of dense tensors; nothing if they are sent unencoded.
  std::optional<std::string> quantizer() const;
  // The steps of a window, at whose end ranks have synchronised; 1 for methods without local steps.
  int window_steps() const;
  bool has_local_steps() const;
  bool begins_when_idle() const;        // without dates
  bool exchanges_beside_steps() const;  // which another trial's turn would hide
  bool operator==(const MethodChoice&) const = default;
};

struct CellConfig {
  TrialKind kind = TrialKind::kThroughput;
  Mode mode = Mode::kMeasured;
  std::string workload;
  std::string data;        // a prepared data set; "": the workload's own data
  std::string data_id;     // the head of the data set's id
  std::string weights;     // initial parameters, of the folder of weights; "": drawn from the seed
  std::string weights_id;  // the head of the file's SHA-256
  Options workload_options, recipe;
  int workers = 1, ranks_per_node = 1, threads_per_worker = 1;
  int batch_per_worker = 1, accumulation = 1;
  Transport transport = Transport::kMpi;
  Place device = Place::kCpu;
  Precision precision = Precision::kFp32;
  std::optional<LinkShape> link;  // nothing: the machine's own
  int warmup_steps = 0, steps = 1;
  double deadline_seconds = 60;

  // Keys of cells.
  std::string method;
  std::string method_content;  // of a file outside the tree: the head of its hash
  MethodChoice method_options;
  std::string sparsifier = "none";
  Options sparsifier_options;
  double density = 1;
  std::string feedback = "none";
  Options feedback_options;
  DenseTensors dense_tensors;
  std::vector<std::string> no_feedback_tensors;
  std::optional<int> evaluate_every;  // kind convergence
  std::optional<double> target;       // kind convergence
  // For kind convergence with local steps, the evaluated parameters: "anchor", "average" or "own";
  // else "".
  std::string evaluate;
  std::string cluster;                   // mode modelled; else ""
  std::map<std::string, double> inputs;  // factors that are not 1
  // Buffers that are broadcast before each forward pass; nothing: the number in the workload's
  // table.
  std::optional<std::int64_t> broadcast_bytes;

  // Keys of profile trials.
  std::vector<std::string> sparsifiers, quantizers;

  // The link that profiles measure. It has no host time, which a profile measures separately.
  std::optional<LinkShape> measured_link() const {
    return link ? std::optional(link->WithoutHost()) : std::nullopt;
  }
  double exchange_host_seconds() const { return link ? 1e-6 * link->host_us : 0; }
  bool is_profile() const { return kind == TrialKind::kProfile; }
  bool is_fingerprint() const { return kind == TrialKind::kFingerprint; }
  bool modelled() const { return mode == Mode::kModelled; }
  bool operator==(const CellConfig&) const = default;
};

// The configuration as stored: null for keys that a cell does not have, numbers unchanged.
nlohmann::json ToJson(const CellConfig& config);
// Throws Error{kData} naming the key that is missing or has another type. whole: the name of the
// configuration in errors.
CellConfig CellConfigOf(const nlohmann::json& json, std::string_view whole = "configuration");

nlohmann::json ToJson(const std::optional<LinkShape>& link);
// "1 Gbit/s", "1 Gbit/s, 10 within nodes"; of nothing "unshaped".
std::string LinkWords(const std::optional<LinkShape>& link);
// "1 Gbit/s link, 100 µs per message; within nodes 10 Gbit/s, 5 µs"
std::string LinkWordsInFull(const LinkShape& link);
// A link as stored, or as a file gives it after WhatIsWrong("link", ...) found no mistake.
std::optional<LinkShape> StoredLink(const nlohmann::json& link);
nlohmann::json ToJson(const MethodChoice& choice);

// A trial's config.json: its cell, the seed of its block, and its place.
struct TrialConfig {
  CellConfig cell;
  std::uint64_t seed = 0;
  int block = 0;
  std::string trial_id;
};
nlohmann::json ToJson(const TrialConfig& trial);
TrialConfig TrialConfigOf(const nlohmann::json& json, std::string_view whole = "configuration");

// Part of a cell's identity. It is raised if configurations change so that nobody can tell whether
// stored trials belong to the same cells; then all of them are stale. A new key needs no new
// schema, because it is `later` in the table. Removing a key or changing its meaning does.
inline constexpr int kConfigSchema = 2;

// As above, of a stored configuration: 1 if it does not say.
int WindowSteps(const nlohmann::json& config);

// The identity of a cell: the hash of its schema and configuration.
std::string ConfigHash(const CellConfig& config);
// As above, of a stored configuration. Keys that only name or repeat it (seed, block, trial_id) do
// not count.
std::string ConfigHash(const nlohmann::json& config);
// Whether the same processes can serve both: the keys with the role `process` are equal.
bool HaveTheSameProcesses(const CellConfig& a, const CellConfig& b);
// Removes keys that were added to cells later from a configuration as JSON, except `kept`, if they
// have their initial value. So hashes are the same as before these keys existed.
void EraseLaterKeys(nlohmann::json& config, std::span<const std::string_view> kept = {});
// Whether two configurations as JSON agree in all keys that ConfigHash reads, and therefore have
// the same hash. False does not imply different hashes.
bool SaysTheSame(const nlohmann::json& one, const nlohmann::json& other);

// How errors name a cell: "mode = emulated, method = wfbp, workload = digits-resnet, workers = 4".
std::string CellName(const CellConfig& config);

}  // namespace sparfuse::harness
