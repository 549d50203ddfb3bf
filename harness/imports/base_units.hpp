// Converts numbers of others to the units in which trials store theirs.
#pragma once

#include <string>
#include <string_view>

#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

// What a rate is counted by, where its unit does not say.
struct CountedBy {
  int workers = 1;
  bool of_one_worker = false;   // the number is of one of them, not of all
  double units_per_sample = 0;  // as given; 0: as the workload's, which has to be 1 then
};

struct InBaseUnits {
  double value = 0;
  std::string unit;      // "images/s" of all workers, "s", "1", or what the workload's metric is
  std::string expected;  // "": converted; else what `unit` or the number should have been
};

// The metrics that may be imported.
inline constexpr std::string_view kThroughput = "throughput", kStepSeconds = "step_seconds",
                                  kFinalMetric = "final_metric",
                                  kSecondsToTarget = "seconds_to_target";

// Whether the number is a rate of samples, which one worker or all of them process.
bool IsRate(std::string_view metric);

// metric: one of the four. Precondition: `value` is finite, by.workers >= 1.
InBaseUnits ToBaseUnits(std::string_view metric, double value, std::string_view unit,
                        const workloads::WorkloadDescriptor& workload, const CountedBy& by);

}  // namespace sparfuse::harness
