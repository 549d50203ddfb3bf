// Describes a trial as readers see it, made of its trial.json or of its row in the index.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/store/stored_json.hpp"
#include "harness/store/trial_files.hpp"

namespace sparfuse::harness {

// The form of a trial.json. Raised where a later program would misread earlier trials: these no
// longer count, and run again.
inline constexpr int kTrialSchema = 2;

// How a trial was run: in a launch of its own, in turn with others, or drawn again and again.
struct RowLaunch {
  std::string id;
  std::size_t trials = 1;           // in the launch
  double start_seconds = 0;         // of its processes, once for all; 0: not known
  std::vector<double> rounds = {};  // step_seconds of each; empty: it took no turns
  // Of a trial modelled on a declared cluster: metrics, each once for every draw of its inputs.
  std::map<std::string, std::vector<double>> draws = {};
};
void to_json(nlohmann::json& to, const RowLaunch& launch);
void from_json(const nlohmann::json& from, RowLaunch& launch);

struct TrialRow {
  std::string trial_id, experiment, part, kind, mode, method, workload;
  std::string config_hash, system_hash, status, failure_kind, failure_message, log_tail, directory,
      started_utc;
  int workers = 0;
  int block = 0;
  std::int64_t seed = 0;
  double seconds = 0;
  StoredJson config, system;
  StoredJson provenance;  // source, sources, software, argv, environment, machine, sampling
  // What the trial read of its machine, judged (harness/machine/quiet.hpp); null of one that is
  // modelled or older.
  StoredJson quiet;
  RowLaunch launch;
  StoredJson revisions;
  NamedValues<double> metrics;
  NamedValues<std::string_view> units;  // of metrics
  std::vector<std::string> checks;      // those that passed
  std::vector<std::string> failed_checks;
  std::vector<std::string> annotations;  // reasons why readers leave it out
  FileStamp stamp;                       // of the trial.json that it was read from

  bool counts() const { return status == "ok" && annotations.empty(); }
  bool disturbed() const;
  std::string WhyDisturbed() const;  // a sentence; "" where it is not
};

// Precondition: WhatIsWrongWithTrial(trial) is "".
TrialRow RowOf(const nlohmann::json& trial);

// In order of start; trials that started together, by the number that ends their ids.
void SortByAge(std::vector<TrialRow>& rows);

// Whether a trial.json was written by a program of an older schema.
bool IsOlderTrial(const nlohmann::json& trial);

// Checks what readers rely on in the content of a trial.json, values included; "" or what is wrong
// with it.
std::string WhatIsWrongWithTrial(const nlohmann::json& trial);

}  // namespace sparfuse::harness
