#include "core/engine/model/model_engine.hpp"

#include <algorithm>

#include "core/engine/model/model_cluster.hpp"

namespace sparfuse {

ModelStep SimulateStep(const ModelConfig& config, std::uint64_t step, int traced_ranks) {
  const int ranks = config.topology.ranks;
  const bool alone = config.ranks_per_machine == 1;  // no rank slows another one down
  int simulated = alone ? std::clamp(traced_ranks, 1, ranks) : ranks;
  for (;;) {
    ModelCluster cluster(config, step, simulated);
    if (auto result = cluster.Run(traced_ranks)) return *std::move(result);
    simulated = cluster.needed();
  }
}

}  // namespace sparfuse
