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
  // What the host takes to prepare an exchange, one after another beside the network
  // (StepScheduler).
  double host_us = 0;
  // Of a rank's link to others of its node; 0: not said, nodes are of one rank.
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

// What a method is made of in one trial, defaults resolved.
struct MethodChoice {
  std::string strategy, planner, collective;
  Options strategy_options, planner_options, collective_options;
  Options sending;  // of SendingOptions()

  // What dense tensors are encoded with; nothing where they are sent as they are.
  std::optional<std::string> quantizer() const;
  // Of a window, at whose end ranks have synchronised; 1 but for methods with local steps.
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

  // Of cells.
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
  // Kind convergence, with local steps: of what. "anchor", "average" or "own"; else "".
  std::string evaluate;
  std::string cluster;                   // mode modelled; else ""
  std::map<std::string, double> inputs;  // factors that are not 1
  // Buffers that are broadcast before each forward pass; nothing: as many as the workload's table
  // says.
  std::optional<std::int64_t> broadcast_bytes;

  // Of profile trials.
  std::vector<std::string> sparsifiers, quantizers;

  // The link that profiles measure: what the host takes goes on beside it.
  std::optional<LinkShape> measured_link() const {
    return link ? std::optional(link->WithoutHost()) : std::nullopt;
  }
  double exchange_host_seconds() const { return link ? 1e-6 * link->host_us : 0; }
  bool is_profile() const { return kind == TrialKind::kProfile; }
  bool is_fingerprint() const { return kind == TrialKind::kFingerprint; }
  bool modelled() const { return mode == Mode::kModelled; }
  bool operator==(const CellConfig&) const = default;
};

// The configuration as stored: null for what a cell does not have, numbers as they are.
nlohmann::json ToJson(const CellConfig& config);
// Throws Error{kData} naming the key that is missing or has another type. whole: what errors call
// the configuration.
CellConfig CellConfigOf(const nlohmann::json& json, std::string_view whole = "configuration");

nlohmann::json ToJson(const std::optional<LinkShape>& link);
// "1 Gbit/s", "1 Gbit/s, 10 within nodes"; of nothing "unshaped".
std::string LinkWords(const std::optional<LinkShape>& link);
// "1 Gbit/s link, 100 µs per message; within nodes 10 Gbit/s, 5 µs"
std::string LinkWordsInFull(const LinkShape& link);
// A link as it is stored, or as a file gives it and WhatIsWrong("link", ...) has found right.
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

// Identity. Raised where configurations change so that stored trials cannot be told to be of the
// same cells: all of them are then stale. A key that is added needs no new schema: it is `later` in
// the table. Keys that are removed, or whose meaning changes, do.
inline constexpr int kConfigSchema = 2;

// The same of a configuration as it is stored: 1 where it does not say.
int WindowSteps(const nlohmann::json& config);

// The identity of a cell: the hash of its schema and configuration.
std::string ConfigHash(const CellConfig& config);
// The same of a configuration as it is stored, whatever beside it only names or repeats it (seed,
// block, trial_id).
std::string ConfigHash(const nlohmann::json& config);
// Whether the processes of ranks are the same for both: the keys of processes are alike.
bool HaveTheSameProcesses(const CellConfig& a, const CellConfig& b);
// Takes the keys that were added to cells later out of a configuration as JSON, but for `kept`, if
// they have their initial value: hashes are those from before there were such keys.
void EraseLaterKeys(nlohmann::json& config, std::span<const std::string_view> kept = {});
// Whether two configurations as JSON say the same of all that ConfigHash looks at, and therefore
// hash alike. False says nothing.
bool SaysTheSame(const nlohmann::json& one, const nlohmann::json& other);

// How errors name a cell: "mode = emulated, method = wfbp, workload = digits-resnet, workers = 4".
std::string CellName(const CellConfig& config);

}  // namespace sparfuse::harness
