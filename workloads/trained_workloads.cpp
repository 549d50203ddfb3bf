// The workloads that train on real data here.
#include <utility>

#include "workloads/optimizer.hpp"
#include "workloads/workload_tables.hpp"

namespace sparfuse {
namespace {

DataFileSpec DigitsFile() { return {"digits", "digits/digits.bin", 3925064, 0xfc47c046u}; }
DataFileSpec TextFile() { return {"text", "text/text.bin", 4137977, 0x6938328bu}; }

// Enough for a perplexity to half a percent; all of the validation text takes seconds.
constexpr std::size_t kEvaluatedWindows = 256;

}  // namespace

std::vector<WorkloadDescriptor> TrainedWorkloads() {
  std::vector<WorkloadDescriptor> table;
  {
    WorkloadDescriptor w;
    w.name = "digits-resnet";
    w.summary =
        "a residual CNN with group normalisation classifies 5,000 handwritten digits (MNIST)";
    w.kind_of_data = "images";
    w.model = DigitsResnetSize{};
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
    w.kind_of_data = "text";
    w.model = GptSize{.vocabulary = kTextCharacters,
                      .window = static_cast<std::int64_t>(kTextWindow),
                      .width = 128,
                      .layers = 4,
                      .heads = 4,
                      .dropout = 0,
                      .names = GptNames::kSpelledOut};
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
    w.kind_of_data = "text";
    w.model = LstmSize{.vocabulary = kTextCharacters,
                       .window = static_cast<std::int64_t>(kTextWindow),
                       .embedding = 64,
                       .hidden = 256,
                       .dropout = 0,
                       .names = LstmNames::kSpelledOut};
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

}  // namespace sparfuse
