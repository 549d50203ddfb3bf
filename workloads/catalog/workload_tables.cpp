#include "workloads/catalog/workload_tables.hpp"

#include <utility>

namespace sparfuse::workloads {
namespace {

std::vector<OptionSpec> OptionsWith(const Recipe& recipe) {
  std::vector<OptionSpec> options = RecipeOptions(recipe);
  options.push_back(FlagOption("unused_parameter", false,
                               "test aid: registers a parameter that no loss depends on"));
  options.push_back(
      WholeOption("nan_step", -1, -1, 1e12,
                  "test aid: at this step rank 0 gets a NaN in one gradient; -1 is never"));
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

Recipe RecipeOf(std::string optimizer, double learning_rate, double weight_decay,
                std::uint64_t warmup_steps, std::string schedule) {
  return {.optimizer = std::move(optimizer),
          .learning_rate = learning_rate,
          .momentum = 0.9,
          .beta2 = 0.999,
          .weight_decay = weight_decay,
          .warmup_steps = warmup_steps,
          .schedule = std::move(schedule)};
}

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
  WorkloadDescriptor w = ImageWorkload(
      "recorded-resnet",
      "digits-resnet with synthetic gradients, and sleeps of its recorded times for forward and "
      "backward",
      DigitsResnetSize{}, RecipeOf("sgd", 1e-3, 5e-4, 0, "constant"));
  w.sleeps = true;
  // A step takes 245 ms. Eight ranks on two cores select and exchange in a small part of it.
  w.batch_per_worker = 160;
  w.synthetic_samples = w.training_samples = 1 << 20;
  w.small = "digits-resnet";
  return {std::move(w)};
}

}  // namespace sparfuse::workloads
