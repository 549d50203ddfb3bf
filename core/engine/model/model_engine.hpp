// Computes when the operations of a strategy would have happened, by a discrete-event simulation of
// P workers, their lanes and their links. It moves no gradient data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/coding/payload_coding.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/cost/cost_model.hpp"
#include "core/engine/engine.hpp"
#include "core/engine/timeline.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

struct ModelConfig {
  GradientLayout layout;
  Plan plan;
  Topology topology;
  std::function<std::unique_ptr<Strategy>()> make_strategy;  // one a rank
  std::optional<LocalSteps> local_steps = {};                // StrategyDescriptor::local_steps
  std::size_t inner_arrays = 0;                              // Engine::inner_arrays
  std::string sparsifier;                                    // key of cost.selection
  std::shared_ptr<const Sparsifier> selector;  // says how many elements are kept; null: KeptCount
  SelectionModel selection;                    // of its counts
  bool index_shared = false;                   // all ranks select equal counts
  bool unbounded_count = false;                // of the sparsifier's descriptor
  // Shared with the model's other steps.
  std::shared_ptr<const Collective> dense_collective;
  std::shared_ptr<const Collective> sparse_collective;
  OverlapModel overlap;  // of the ranks' selections, for collectives that sum on the way
  // Changes bytes. cost.selection_coding has the seconds of encoding and decoding; halves and gaps
  // take no time.
  PayloadCoding coding;
  // Encodes whole (unsparsified) tensors. Null: they are sent as index/value pairs.
  std::shared_ptr<const Quantizer> dense_quantizer;
  CostModel cost;
  BackwardProfile backward;  // of one micro-step
  int micro_steps = 1;       // passes of a step; the gradients of the last one are announced
  // Ranks of one machine share its cores. Each working lane uses one core, and so does each rank's
  // communication thread while it adds. cores_per_machine <= 0: every lane has a core of its own.
  int cores_per_machine = 0;
  int ranks_per_machine = 1;
  std::uint64_t seed = 1;
};

// The records of a step. kAll: times and counts of all ranks. kTimes: times only, and only of the
// ranks that keep their own time; each other rank has the times of one of these. Counting is most
// of the work on thousands of ranks.
enum class Recorded : std::uint8_t { kAll, kTimes };

// One simulated step of every rank, starting together.
struct ModelStep {
  std::vector<StepRecord> records;       // [ranks]; with Recorded::kTimes, of the first ranks only
  std::vector<std::vector<Span>> spans;  // [ranks]; filled for the traced ranks only
  // Seconds that the first rank's exchanges occupy links, each counted as if alone on them.
  double wire_seconds = 0;
};

// Simulates a step. `step` keys the random counts of threshold sparsifiers. The first
// `traced_ranks` ranks record spans. Throws Error{kInternal} if the step does not end, naming the
// unfinished operations of the first rank. Cost: O(P * tensors * log) time; a second or two for
// 1,024 ranks of BERT-large.
ModelStep SimulateStep(const ModelConfig& config, std::uint64_t step, int traced_ranks,
                       Recorded recorded = Recorded::kAll);

// Simulates `steps` successive steps: ranks keep their clocks, and exchanges go on from step to
// step. The counts of a background exchange belong to the step that takes it.
std::vector<ModelStep> SimulateSteps(const ModelConfig& config, std::uint64_t first, int steps,
                                     int traced_ranks, Recorded recorded = Recorded::kAll);

// With local steps: simulates two windows and returns the steps of the second, which is like all
// later ones. With LocalSteps::when_idle windows differ by the exchanges that end in them.
std::vector<ModelStep> SimulateWindow(const ModelConfig& config, int traced_ranks);

// Bytes that a rank keeps for the method, without the workload's, as
// LiveEngine::method_memory_bytes.
std::size_t MethodMemoryBytes(const ModelConfig& config);

}  // namespace sparfuse
