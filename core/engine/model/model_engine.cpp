#include "core/engine/model/model_engine.hpp"

#include "core/engine/model/model_cluster.hpp"

namespace sparfuse {

ModelStep SimulateStep(const ModelConfig& config, std::uint64_t step, int traced_ranks) {
  return ModelCluster(config, step).Run(traced_ranks);
}

}  // namespace sparfuse
