#include "workloads/catalog/workload_tables.hpp"

#include <utility>

namespace sparfuse::workloads {

namespace {

std::vector<OptionSpec> OptionsWith(const Recipe& recipe) {
  std::vector<OptionSpec> options = RecipeOptions(recipe);
  options.push_back({"unused_parameter",
                     false,
                     0,
                     0,
                     {},
                     "test aid: registers a parameter that no loss depends on"});
  options.push_back({"nan_step",
                     std::int64_t{-1},
                     -1,
                     1e12,
                     {},
                     "test aid: at this step rank 0 gets a NaN in one gradient; -1 is never"});
  return options;
}

WorkloadDescriptor Workload(std::string name, std::string summary, ModelSize model,
                            const Recipe& recipe) {
  WorkloadDescriptor w;
  w.name = std::move(name);
  w.summary = std::move(summary);
  w.model = std::move(model);
  w.options = OptionsWith(recipe);
  return w;
}

}  // namespace

WorkloadDescriptor ImageWorkload(std::string name, std::string summary, ModelSize model,
                                 const Recipe& recipe) {
  WorkloadDescriptor w = Workload(std::move(name), std::move(summary), std::move(model), recipe);
  w.kind_of_data = "images";
  w.unit = "images";
  w.batch_per_worker = 32;
  w.metric = "accuracy";
  return w;
}

WorkloadDescriptor TextWorkload(std::string name, std::string summary, ModelSize model,
                                std::size_t window, const Recipe& recipe) {
  WorkloadDescriptor w = Workload(std::move(name), std::move(summary), std::move(model), recipe);
  w.kind_of_data = "text";
  w.unit = "tokens";
  w.units_per_sample = window;
  w.metric = "perplexity";
  w.higher_is_better = false;
  return w;
}

WorkloadDescriptor QuestionWorkload(std::string name, std::string summary, ModelSize model,
                                    std::size_t window, const Recipe& recipe) {
  WorkloadDescriptor w = Workload(std::move(name), std::move(summary), std::move(model), recipe);
  w.kind_of_data = "questions";
  w.unit = "tokens";
  w.units_per_sample = window;
  w.metric = "f1";
  return w;
}

WorkloadDescriptor Normalised(WorkloadDescriptor workload) {
  workload.revision = 2;
  return workload;
}

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
      "digits-resnet with synthetic gradients, and sleeps of its recorded times for forward and "
      "backward",
      DigitsResnetSize{}, recipe);
  w.sleeps = true;
  // A step takes 245 ms. Eight ranks on two cores select and exchange in a small part of it.
  w.batch_per_worker = 160;
  w.synthetic_samples = w.training_samples = 1 << 20;
  w.small = "digits-resnet";
  return {std::move(w)};
}

}  // namespace sparfuse::workloads
