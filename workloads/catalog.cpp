#include "workloads/catalog.hpp"

#include <utility>

#include "core/error.hpp"
#include "workloads/model_sizes.hpp"
#include "workloads/optimizer.hpp"

namespace sparfuse {
namespace {

DataFileSpec DigitsFile() { return {"digits", "digits/digits.bin", 3925064, 0xfc47c046u}; }
DataFileSpec TextFile() { return {"text", "text/text.bin", 4137977, 0x6938328bu}; }

// Enough for a perplexity to half a percent; all of the validation text takes seconds.
constexpr std::size_t kEvaluatedWindows = 256;

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

std::vector<WorkloadDescriptor> MakeTable() {
  std::vector<WorkloadDescriptor> table;
  {
    WorkloadDescriptor w;
    w.name = "digits-resnet";
    w.summary =
        "a residual CNN with group normalisation classifies 5,000 handwritten digits (MNIST)";
    w.unit = "images";
    w.batch_per_worker = 32;
    w.metric = "accuracy";
    w.target = 0.97;
    w.target_steps = 500;
    w.data_files = {DigitsFile()};
    w.options = OptionsWith({.optimizer = "sgd",
                             .learning_rate = 0.02,
                             .momentum = 0.9,
                             .beta2 = 0.999,
                             .weight_decay = 5e-4,
                             .warmup_steps = 20,
                             .schedule = "cosine"});
    table.push_back(std::move(w));
  }
  {
    WorkloadDescriptor w;
    w.name = "text-gpt";
    w.summary =
        "a pre-norm transformer with tied embeddings predicts the next character of the "
        "King James Version";
    w.unit = "tokens";
    w.units_per_sample = kTextWindow;
    w.batch_per_worker = 8;
    w.metric = "perplexity";
    w.higher_is_better = false;
    w.target = 7.0;
    w.target_steps = 1000;
    w.evaluation_samples = kEvaluatedWindows;
    w.data_files = {TextFile()};
    w.options = OptionsWith({.optimizer = "adam",
                             .learning_rate = 2e-3,
                             .momentum = 0.9,
                             .beta2 = 0.99,
                             .weight_decay = 0.01,
                             .warmup_steps = 50,
                             .schedule = "cosine"});
    table.push_back(std::move(w));
  }
  {
    WorkloadDescriptor w;
    w.name = "text-lstm";
    w.summary = "a two-layer LSTM predicts the next character of the King James Version";
    w.unit = "tokens";
    w.units_per_sample = kTextWindow;
    w.batch_per_worker = 8;
    w.metric = "perplexity";
    w.higher_is_better = false;
    w.target = 5.0;
    w.target_steps = 1000;
    w.evaluation_samples = kEvaluatedWindows;
    w.data_files = {TextFile()};
    w.options = OptionsWith({.optimizer = "adam",
                             .learning_rate = 3e-3,
                             .momentum = 0.9,
                             .beta2 = 0.99,
                             .weight_decay = 0.0,
                             .warmup_steps = 20,
                             .schedule = "cosine"});
    table.push_back(std::move(w));
  }
  return table;
}

}  // namespace

std::span<const WorkloadDescriptor> Workloads() {
  static const std::vector<WorkloadDescriptor> table = MakeTable();
  return table;
}

const WorkloadDescriptor& FindWorkload(std::string_view name) {
  std::vector<std::string> known;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (workload.name == name) return workload;
    known.push_back(workload.name);
  }
  SPARFUSE_THROW(kConfig,
                 "unknown workload \"" + std::string(name) + "\"" + Suggestion(name, known));
}

void CheckData(const WorkloadDescriptor& workload, const std::filesystem::path& data_directory) {
  const std::filesystem::path directory = ResolveDataDirectory(data_directory);
  for (const DataFileSpec& file : workload.data_files) CheckDataFile(directory, file);
}

}  // namespace sparfuse
