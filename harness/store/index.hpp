// Reads and writes the SQLite index over the trial directories.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

struct sqlite3;

namespace sparfuse::harness {

// The form of a trial.json. Raised where a later program would misread earlier trials: these no
// longer count, and run again.
inline constexpr int kTrialSchema = 2;

// A trial as the index knows it.
struct TrialRow {
  std::string trial_id, experiment, part, kind, mode, method, workload;
  std::string config_hash, system_hash, status, failure_kind, failure_message, log_tail, directory,
      started_utc;
  int workers = 0;
  int block = 0;
  double seconds = 0;
  nlohmann::json config, system, provenance;
  // What the trial read of its machine, judged (harness/machine/quiet.hpp); null of one that is
  // modelled or older.
  nlohmann::json quiet;
  nlohmann::json revisions = nlohmann::json::object();
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> units;  // of metrics
  std::vector<std::string> failed_checks;
  std::vector<std::string> annotations;  // reasons why readers leave it out

  bool counts() const { return status == "ok" && annotations.empty(); }
  bool disturbed() const;
  std::string WhyDisturbed() const;  // a sentence; "" where it is not
};

// How a trial was run: in a launch of its own, or in turn with others.
struct RowLaunch {
  std::string id;
  std::size_t trials = 1;           // in the launch
  double start_seconds = 0;         // of its processes, once for all; 0: not known
  std::vector<double> rounds = {};  // step_seconds of each; empty: it took no turns
};
RowLaunch LaunchOf(const TrialRow& row);

// Append-only. All failures are Error{kData} that name the file and SQLite's reason.
class Index {
 public:
  // Precondition: IsCurrent(path).
  static Index OpenToWrite(const std::filesystem::path& path);
  static Index OpenToRead(const std::filesystem::path& path);
  // Whether an index is not there yet or is of kTrialSchema; one of an older schema is made again.
  // For who holds the store's lock.
  static bool IsCurrent(const std::filesystem::path& path);
  Index(Index&&) noexcept;
  Index& operator=(Index&&) noexcept;
  ~Index();

  // One transaction. `trial` is the content of a trial.json.
  void AddTrial(const nlohmann::json& trial);
  void AddAnnotation(const nlohmann::json& annotation);

  std::set<std::string> TrialIds() const;
  std::set<std::string> AnnotationIds() const;
  // In order of start; trials that started together, by the number that ends their ids.
  std::vector<TrialRow> Rows() const;

 private:
  friend class Statement;
  Index(const std::filesystem::path& path, int flags);
  void Execute(const char* sql);
  int Schema() const;
  [[noreturn]] void Fail(const char* what) const;

  std::filesystem::path path_;
  sqlite3* database_ = nullptr;
};

// Whether a trial.json was written by a program of an older schema.
bool IsOlderTrial(const nlohmann::json& trial);

// Checks what readers rely on in the content of a trial.json; "" or what is wrong with it.
std::string WhatIsWrongWithTrial(const nlohmann::json& trial);

}  // namespace sparfuse::harness
