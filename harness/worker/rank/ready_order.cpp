#include "harness/worker/rank/ready_order.hpp"

#include "core/device/runtime.hpp"

namespace sparfuse::harness {

std::unique_ptr<workloads::TrainingWorkload> MakeTrialWorkload(const Rank& rank) {
  const CellConfig& config = rank.config;
  workloads::WorkloadConfig made;
  made.rank = rank.rank();
  made.world = rank.size();
  made.batch_per_worker = static_cast<std::size_t>(config.batch_per_worker);
  made.accumulation = config.accumulation;
  made.seed = rank.seed;
  made.threads = config.threads_per_worker;
  if (rank.device.kind == DeviceKind::kCuda) made.stream = rank.compute;
  made.precision = config.precision;
  made.deterministic = config.kind == TrialKind::kConvergence;
  if (made.deterministic) made.total_steps = static_cast<std::uint64_t>(config.steps);
  made.data = config.data;
  made.data_id = config.data_id;
  made.weights = config.weights;
  made.weights_id = config.weights_id;
  made.options = config.workload_options;
  for (const auto& [key, value] : config.recipe) made.options[key] = value;
  return workloads::MakeWorkload(config.workload, made);
}

void PrepareStep(const Rank& rank, workloads::TrainingWorkload& workload, std::uint64_t step) {
  if (rank.device.kind != DeviceKind::kCuda) return;
  const int micro_steps = rank.config.accumulation;
  for (int micro = 0; micro < micro_steps; ++micro) workload.Prepare(step, micro);
  gpu::Synchronize(rank.compute);
}

std::vector<std::size_t> ObserveReadyOrder(const Rank& rank,
                                           workloads::TrainingWorkload& workload) {
  const std::size_t parameters = workload.Parameters().size();
  std::vector<std::int64_t> order;
  workload.SetGradientHook([&order](std::size_t parameter, const float*, std::size_t) {
    order.push_back(static_cast<std::int64_t>(parameter));
  });
  workload.ClearGradients();
  const std::vector<float> statistics = workload.Statistics();  // this pass is not part of training
  const int micro_steps = rank.config.accumulation;
  for (int micro = 0; micro < micro_steps; ++micro) {
    workload.BeginForward(0, micro);
    workload.Backward(micro + 1 == micro_steps);
  }
  workload.ClearGradients();
  workload.SetStatistics(statistics);
  workload.TakeLoaderWait();
  order.resize(parameters, -1);
  rank.BroadcastFromZero(std::as_writable_bytes(std::span(order)));
  std::vector<std::size_t> observed;
  for (const std::int64_t parameter : order) {
    if (parameter >= 0) observed.push_back(static_cast<std::size_t>(parameter));
  }
  return observed;
}

}  // namespace sparfuse::harness
