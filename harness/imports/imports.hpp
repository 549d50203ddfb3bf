// Reads tables and logs of others, doubts impossible numbers, and adds the rest to the store as
// trials of the mode "imported".
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/expression.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/records/trial.hpp"
#include "harness/store/store.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// The factors of a rate, if its unit does not state them.
struct CountedBy {
  int workers = 1;
  bool of_one_worker = false;   // the number is of one worker, not of all
  double units_per_sample = 0;  // as given; 0: as the workload's, which has to be 1 then
};

struct InBaseUnits {
  double value = 0;
  std::string unit;      // "images/s" of all workers, "s", "1", or the unit of the workload's
                         // metric
  std::string expected;  // "": converted; else the expected form of `unit` or the number
};

// The metrics that may be imported.
inline constexpr std::string_view kThroughput = "throughput", kStepSeconds = "step_seconds",
                                  kFinalMetric = "final_metric",
                                  kSecondsToTarget = "seconds_to_target";

// Whether the number is a rate of samples, either of one worker or of all.
bool IsRate(std::string_view metric);

// metric: one of the four. Precondition: `value` is finite, by.workers >= 1.
InBaseUnits ToBaseUnits(std::string_view metric, double value, std::string_view unit,
                        const workloads::WorkloadDescriptor& workload, const CountedBy& by);

// An imported result in its stored form: its setting, its number in our units, and the doubts about
// it. The setting: the model that was trained, the software and the machine.
struct ImportedSetting {
  std::string system, source;
  std::string workload, method;
  std::string sparsifier;  // "": the source does not say
  std::optional<double> density, network_gbps;
  int workers = 1;
  std::optional<int> ranks_per_node, batch_per_worker;
  double units_per_sample = 1;
  int run = 0;

  // The units that a step processes, in the workload's unit; none if the batch is not known.
  std::optional<double> units_per_step() const;
};

// A step of a log.
struct ImportedStep {
  std::optional<double> step, seconds, rate, loss;  // rate: as given
  bool measured = true;
};
struct ImportedEvaluation {
  double step = 0, metric = 0;
  std::optional<double> seconds, loss;  // of training so far
};

struct ImportedResult {
  std::string where;  // "numbers.csv:3"
  ImportedSetting setting;
  std::string metric;  // one of the four above
  std::string unit;
  double value = 0;              // of all workers
  std::string stated;            // as the source has it: "195.8 +- 0.6 img/s, of a worker"
  double deviation = 0;          // relative, as stated; 0: none is
  std::size_t steps = 0;         // of a log: the steps whose median is `value`
  double standard_error = 0;     // of that median, relative
  std::optional<double> target;  // of the evaluated metric
  std::vector<ImportedStep> log;
  std::vector<ImportedEvaluation> curve;
  std::string file, sha256;  // that it is from; a name without folders
  // The rate of the network that its label implies, 10^9 bit/s (Doubt of imports.hpp).
  std::optional<std::pair<double, double>> implied_gbps;
  std::vector<std::string> doubts;  // sentences
};

// Reads the keys of a setting. Returns nothing if there are problems.
std::optional<ImportedSetting> SettingOf(const GivenValues& given, const ImportMap& map,
                                         const Catalog& catalog, Problems& problems);
// Reads a whole result; the same.
std::optional<ImportedResult> ResultOf(const GivenValues& given, const ImportMap& map,
                                       const Catalog& catalog, Problems& problems);

// The configuration and system of the trial that it becomes: with `run`, its identity.
OthersConfig ConfigOf(const ImportedResult& result);
System SystemOf(const ImportedSetting& setting);
// The trial without its id, origin and series. Nothing in it depends on this machine or on today,
// so two stores that import one file have one trial.
Trial TrialOf(const ImportedResult& result);

// The trial, if a reader of the store would accept it. Else adds a problem: a number that no
// machine can give.
std::optional<Trial> CheckStorable(const ImportedResult& result, Problems& problems);

// "throughput of safusion, resnet152-imagenet, 8 workers, density 0.01"
std::string TitleOf(const ImportedResult& result);

// Compares results with the store's by system, source, configuration and run.
struct ImportPlan {
  std::vector<const ImportedResult*> add;
  std::size_t present = 0;           // with the same numbers
  std::vector<std::string> refused;  // with others: sentences
};

// rows: the store's. What was called bad is as good as not there.
ImportPlan PlanImport(std::span<const ImportedResult> results, const std::vector<TrialRow>& rows);

// Makes each a trial, whole or unfinished as in a run: after a kill the same import goes on.
// Returns the ids.
std::vector<std::string> AddImported(const Store& store, const StoreLock& lock,
                                     std::span<const ImportedResult* const> results);

// Reads all rows, in the order of the file. The value of a key is in the column that the map names,
// else it is the map's constant, else it is in the column of the key's own name. Throws
// Error{kConfig} with all problems: missing values, other types, unknown names, units that do not
// fit the metric, duplicates. unread: gets the names of columns that were not read; notes: the
// parts that were left out.
std::vector<ImportedResult> ReadResultTable(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* unread = nullptr,
                                            std::vector<std::string>* notes = nullptr);

// A regular expression (core/base/expression.hpp) whose groups may have names, (?<name>...) or
// (?P<name>...). Several groups may have the same name.
class LinePattern {
 public:
  // Throws Error{kConfig} naming the place of the pattern if it is not a regular expression, has no
  // named group, or has one that is not in `known`.
  LinePattern(const GivenText& pattern, const std::vector<std::string>& known);

  // One that says which lines are meant, and needs no names.
  explicit LinePattern(const GivenText& pattern);

  const std::string& where() const noexcept { return where_; }
  bool Matches(std::string_view line) const;
  // Calls `use` with each name and the text of its group in the first match, the last group first.
  // False if there is no match.
  bool Find(std::string_view line,
            const std::function<void(const std::string& name, std::string_view value)>& use) const;
  // The same as {name: value}.
  std::map<std::string, std::string> Match(std::string_view line) const;

 private:
  std::string where_;
  Expression pattern_;
  std::vector<std::pair<std::size_t, std::string>> names_;  // of groups, which are counted from 1
};

// Reads the results of a log. They are the throughput, or the step time if neither rates nor the
// batch are known, as the median over steps like in our own trials; the last evaluation with its
// curve; or both. Throws Error{kConfig} with all problems, also if steps repeat or go back, which
// happens if several ranks or runs wrote one log. Repeated steps are allowed if each comes equally
// often, and then their median counts, or if the map has steps_again. notes: gets the text that was
// removed, left out and joined.
std::vector<ImportedResult> ReadTrainingLog(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* notes = nullptr);

// Adds results that cannot be true to `doubts`, and sets implied_gbps:
//
// * The throughput and the step time of one setting contradict each other, and its batch is known.
// If they differ by the number of workers, one of them was mistaken for the value of one worker or
// of all.
// * The throughput grows by more than 1.25 times the growth of workers: numbers of all workers were
// taken for numbers of one. Or it does not grow with workers at all: numbers of one were taken for
// all.
// * The step of a dense all-reduce on several nodes is too short for its bytes at the rate of the
// network's label. If the step of one worker with the same batch is there, too, the added
// communication gives a rate, and less than half of the label is doubtful.
//
// Numbers from one number of workers alone, without a step time, can be of one worker or of all;
// nothing here decides that.
void Doubt(std::span<ImportedResult> results, const Catalog& catalog);

}  // namespace sparfuse::harness
