// Describes the workloads: names, units, options and data files, known without LibTorch, so that an
// experiment file is checked before anything starts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/options.hpp"
#include "core/collective/overlap.hpp"
#include "workloads/data/data_file.hpp"
#include "workloads/models/layers.hpp"
#include "workloads/models/model_sizes.hpp"

namespace sparfuse::workloads {

// How sparse a model's gradient is by nature: a batch touches some rows of an embedding, and the
// gradient of the others is 0.
struct NaturalSparsity {
  // (samples, part of the whole gradient's elements that are not 0), measured; samples increasing.
  std::vector<std::pair<double, double>> measured;
  std::size_t row = 1;  // elements that are touched together

  // Between measured points, and beyond them, along a straight line of logarithms; at most 1.
  double Density(double samples) const;
};

struct WorkloadDescriptor {
  std::string name;          // stable: results are keyed by it
  std::string summary;       // one sentence
  int revision = 1;          // raised when results may change; part of a trial's identity
  std::string kind_of_data;  // "images", "text" or "questions"
  ModelSize model;
  // In the place of `model` where a file of the user describes the workload, which can be modelled
  // and not trained.
  std::optional<ModelTable> table;
  std::string unit;  // of throughput: "images", "tokens"
  std::size_t units_per_sample = 1;
  std::size_t batch_per_worker = 0;  // default, in samples of one micro-step
  std::string metric;                // of Evaluate: "accuracy" or "f1" in [0, 1], or "perplexity"
  bool higher_is_better = true;
  double target = 0;                   // of the metric: its value after dense training
  std::uint64_t target_steps = 0;      // within how many steps, with one worker and all defaults
  std::size_t evaluation_samples = 0;  // of an evaluation during training; 0: the whole test data
  std::vector<DataFileSpec> data_files;
  std::size_t training_samples = 0;  // of the data files, or made up
  // If the papers' data is missing here: the number of its training samples. Batches are then made
  // up from the seed, and nothing can be learned from them. 0: the number in the data files.
  std::size_t synthetic_samples = 0;
  // It sleeps for recorded times in the place of forward and backward: throughput only, on the
  // host.
  bool sleeps = false;
  std::optional<NaturalSparsity> natural;  // of a gradient that is sparse without selection
  std::string small;  // a workload of the same family that has real data; empty: this one does
  // The recipe (see RecipeOptions) and the test aids `unused_parameter` and `nan_step`.
  std::vector<OptionSpec> options;

  std::string_view family() const {
    return table ? std::string_view(table->family) : FamilyOf(model);
  }
  bool synthetic() const noexcept { return synthetic_samples > 0; }
};

// The overlap of the selections of ranks that train this workload, and their skew: theta, skew and
// grains, one set for each class of layers. theta is fitted to the union of four ranks' top-k (1 %,
// tensor by tensor, steps 50 to 150) of a small model of the class. With it, the unions of 2, 8 and
// 16 ranks are within 6 % (experiments/zen/densification.toml measures them). skew is fitted to the
// fullest of four and of eight regions of a tensor together (such a selection of one rank alone,
// mean over tensors weighted by sent elements). With it, each of the two is within 6 %
// (tests/workloads/training/region_share_slow_test.cpp measures them). For an embedding of n-grams
// they describe the non-zero elements, fitted at four ranks; unions of 16 are then within 10 %. The
// busiest of contiguous ranges has 1.75, 3.35 and 6.53 times the average at 4, 8 and 16 ranks; the
// model has 1.75, 2.2 and 2.6. A table without a family counts as convolutions.
OverlapModel OverlapOf(const WorkloadDescriptor& workload);

// All workloads, in the order in which they are listed.
std::span<const WorkloadDescriptor> Workloads();

// The families of these, each once.
std::vector<std::string> Families();

// Makes a workload with a table known to FindWorkload by its name, "table:...", for as long as the
// process runs. A name has one content: a second workload of the same name changes nothing.
void KnowTable(WorkloadDescriptor workload);
// Null for others.
const WorkloadDescriptor* FindTable(std::string_view name);

// One of these, or a table that is known. Throws Error{kConfig} with the nearest known name if
// there is no such workload. May be called from any thread.
const WorkloadDescriptor& FindWorkload(std::string_view name);

// ModelTable::broadcast_bytes; 0 for workloads that are no tables.
std::int64_t BroadcastBytesOf(std::string_view name);

// CheckDataFile for each file of the workload, in ResolveDataDirectory(data_directory).
void CheckData(const WorkloadDescriptor& workload, const std::filesystem::path& data_directory);

}  // namespace sparfuse::workloads
