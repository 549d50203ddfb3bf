// Describes an imported result in its stored form: its setting, its number in our units, and the
// doubts about it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/records/trial.hpp"
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

// The model that was trained, the software and the machine.
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

}  // namespace sparfuse::harness
