// Describes a trial as readers see it, made of its trial.json or of its row in the index.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/store/stored_json.hpp"
#include "harness/store/trial_files.hpp"

namespace sparfuse::harness {

// The mode of results of others, which are beside the modes that cells run in: no cell has it, so
// that no such trial stands for one. Their experiment is called the same.
inline constexpr std::string_view kImported = "imported";

// How a trial was run: in a launch of its own, in turn with others, or drawn again and again.
struct RowLaunch {
  std::string id;
  std::size_t trials = 1;           // in the launch
  double start_seconds = 0;         // of its processes, once for all; 0: not known
  std::vector<double> rounds = {};  // step_seconds of each; empty: it took no turns
  // Of a trial modelled on a declared cluster: metrics, each once for every draw of its inputs.
  std::map<std::string, std::vector<double>> draws = {};
};

struct TrialRow {
  std::string trial_id, experiment, part, kind, mode, method, workload;
  // system_hash: of where it ran or whose profile it was computed from; "HASH@ORIGIN" once
  // TellStoresApart found that other hosts may be meant.
  std::string config_hash, system_hash, status, failure_kind, directory, started_utc;
  std::string origin;       // OriginOf
  std::string original_id;  // of an early trial that came in a bundle, which names no store
  // Whose blocks its block is among, "" of the store's own: set by TellStoresApart, as is the
  // number by which trials of one block are found, which no other store's trial of the system has.
  std::string store;
  std::optional<int> block_apart;
  int workers = 0;
  int block = 0;
  std::int64_t seed = 0;
  double seconds = 0;
  StoredJson config, system;
  // source, sources, software, environment, machine, sampling; of live trials that know them
  // launch ({"interface", "cores_a_rank"}), nodes and fingerprint; of others' results, imported
  StoredJson provenance;
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
  bool imported() const { return mode == kImported; }
  int paired_block() const { return block_apart.value_or(block); }
  bool disturbed() const;
  std::string WhyDisturbed() const;  // a sentence; "" where it is not
};

TrialRow RowOf(const Trial& trial);

// On how many hosts its ranks were; 0 where it does not say, as modelled ones.
int HostsOf(const TrialRow& trial);
// Whether trials of a cell may stand in one another's place: not where they ran on unlike numbers
// of hosts.
bool RanAlike(const TrialRow& one, const TrialRow& other);

// In order of start; trials that started together, by the number that ends their ids.
void SortByAge(std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness
