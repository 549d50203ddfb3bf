// Lists the strategies that no paper owns.
#include <memory>
#include <span>
#include <vector>

#include "core/engine/node_shards.hpp"
#include "core/engine/owned_parts.hpp"
#include "core/engine/unit_strategy.hpp"

namespace sparfuse {

std::span<const StrategyDescriptor> CoreStrategies() {
  constexpr auto kMake = [](const Options&) -> std::unique_ptr<Strategy> {
    return std::make_unique<UnitStrategy>();
  };
  static const std::vector<StrategyDescriptor> kStrategies = {
      {"dense-units",
       "all-reduce of each unit when its last gradient is ready",
       "Li et al., PyTorch Distributed, VLDB 2020",
       1,
       "",
       Sparsified::kNever,
       {},
       kMake,
       true},
      {"ahead",
       "each tensor is sparsified when it is ready; a unit is sent when it is complete",
       "SAFusion, HPDC 2025, section 3",
       1,
       "",
       Sparsified::kAhead,
       {},
       kMake,
       true},
      {"behind",
       "tensors are fused first; a unit is sparsified and sent when it is complete",
       "SAFusion, HPDC 2025, section 2",
       1,
       "",
       Sparsified::kBehind,
       {},
       kMake,
       true},
      kNodeShards,
      kOwnedParts,
  };
  return kStrategies;
}

}  // namespace sparfuse
