#include "harness/clusters/parsing/compute_times.hpp"

#include <fmt/format.h>

#include <utility>

#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

void ReadCompute(const ClusterFile& file, const std::string& at, DeclaredCluster& cluster) {
  file.Keys(at, "[[compute]]",
            {"families", "workload", "batch_per_worker", "forward_ms", "backward_ms", "step_ms",
             "samples_per_s", "spread", "kind", "source"});
  ComputeTime time;
  time.workload = file.Workload(at);
  time.families = file.Families(at, time.workload);
  time.batch_per_worker =
      file.Count(at, "batch_per_worker", FindCellKey("batch_per_worker")->range);
  time.kind = file.Kind(at);
  time.source = file->RequiredString(at, "source");
  time.spread = file.Spread(at, time.kind);
  if (file.Has(at + "/step_ms")) {
    SplitStep(file, cluster, 1e-3 * file.Needed(at, "step_ms", kMilliseconds), time);
  } else if (file.Has(at + "/samples_per_s")) {
    SplitStep(file, cluster, time.batch_per_worker / file.Needed(at, "samples_per_s", kCosts),
              time);
  } else {
    time.forward_seconds = 1e-3 * file.Needed(at, "forward_ms", kMilliseconds);
    time.backward_seconds = 1e-3 * file.Needed(at, "backward_ms", kMilliseconds);
  }
  AddCompute(cluster, std::move(time));
}

void AddCompute(DeclaredCluster& cluster, ComputeTime time) {
  cluster.compute.insert(cluster.compute.begin(), std::move(time));
}

void SplitStep(const ClusterFile& file, const DeclaredCluster& cluster, double step_seconds,
               ComputeTime& time) {
  const double update = UpdateSeconds(cluster, time.workload);
  if (step_seconds <= update) {
    file->Fail("", fmt::format("a step of {} takes {:.4g} ms, its update alone {:.4g} ms at "
                               "memory_gbytes_per_s = {:g}: the two conflict",
                               time.workload, step_seconds * 1e3, update * 1e3,
                               cluster.Value("memory_gbytes_per_s")));
  }
  time.forward_seconds = (step_seconds - update) / 3;
  time.backward_seconds = 2 * time.forward_seconds;
}

}  // namespace sparfuse::harness
