#include <fmt/format.h>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/experiment/resolver.hpp"
#include "harness/records/cell_keys.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {

namespace {

GradientLayout KnownLayout(const CellConfig& config) {
  std::vector<TensorShape> tensors;
  for (const workloads::LayerTensor& tensor : workloads::LayersOf(config.workload).tensors)
    tensors.push_back({tensor.name, tensor.shape, tensor.numel});
  return MakeLayout(tensors, config);
}

}  // namespace

void CheckLiveSize(const CellConfig& config) {
  if (config.modelled()) return;
  if (config.workers > kMostLiveWorkers) {
    SPARFUSE_THROW(kConfig, fmt::format("workers = {} in mode {}: they would all run on this "
                                        "machine: expected at most {}, or mode = \"modelled\"",
                                        config.workers, NameOf(config.mode), kMostLiveWorkers));
  }
  // Both are far below what an int holds the product of.
  const int threads = config.workers * config.threads_per_worker;
  if (threads > kMostLiveThreads) {
    SPARFUSE_THROW(
        kConfig, fmt::format("workers = {} with threads_per_worker = {}: {} threads on this "
                             "machine: expected at most {}",
                             config.workers, config.threads_per_worker, threads, kMostLiveThreads));
  }
}

void CheckBatch(const CellConfig& config, const workloads::WorkloadDescriptor& workload) {
  if (config.modelled()) return;
  const std::int64_t samples =
      std::int64_t{config.workers} * config.accumulation * config.batch_per_worker;
  const auto there = static_cast<std::int64_t>(workload.training_samples);
  if (samples <= there) return;
  SPARFUSE_THROW(kConfig, fmt::format("a step takes {} samples (workers * accumulation * "
                                      "batch_per_worker = {} * {} * {}): expected at most {}, the "
                                      "training data of {}",
                                      samples, config.workers, config.accumulation,
                                      config.batch_per_worker, there, workload.name));
}

void CheckTensorNames(const CellConfig& config) {
  if (config.dense_tensors.names.empty() && config.no_feedback_tensors.empty()) return;
  KnownLayout(config);
}

void CheckGivenPlan(const CellConfig& config) {
  const MethodChoice& method = config.method_options;
  if (method.planner != kGivenPlanner) return;
  if (!config.modelled() && !StringOption(method.planner_options, "bytes").empty()) return;
  const GradientLayout layout = KnownLayout(config);
  const PlanInput input{.layout = layout, .topology = {config.workers, config.ranks_per_node}};
  FindPlanner(kGivenPlanner).make(method.planner_options)->MakePlan(input);
}

void CheckSparsifierOptions(const CellConfig& config) {
  if (config.sparsifier == "none" || IsPythonSparsifier(config.sparsifier)) return;
  Compose(config).MakeSparsifier(0);
}

}  // namespace sparfuse::harness
