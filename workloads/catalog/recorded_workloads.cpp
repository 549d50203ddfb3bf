// Lists the workloads whose compute sleeps for recorded times.
#include "workloads/catalog/workload_tables.hpp"

namespace sparfuse::workloads {

std::vector<WorkloadDescriptor> RecordedWorkloads() {
  const Recipe recipe{.optimizer = "sgd",
                      .learning_rate = 1e-3,
                      .momentum = 0.9,
                      .beta2 = 0.999,
                      .weight_decay = 5e-4,
                      .warmup_steps = 0,
                      .schedule = "constant"};
  WorkloadDescriptor w = ImageWorkload(
      "recorded-resnet",
      "digits-resnet's gradients made up, its forward and backward slept through as recorded",
      DigitsResnetSize{}, recipe);
  w.sleeps = true;
  // 245 ms: eight ranks on two cores select and exchange in a small part of it.
  w.batch_per_worker = 160;
  w.synthetic_samples = w.training_samples = 1 << 20;
  w.small = "digits-resnet";
  return {std::move(w)};
}

}  // namespace sparfuse::workloads
