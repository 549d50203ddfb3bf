#include "core/engine/unit_strategy.hpp"

#include <utility>

namespace sparfuse {

void UnitStrategy::StepBegin(Engine& engine) {
  const auto& units = engine.plan().units;
  const std::size_t tensors = engine.layout().tensors();
  unit_of_ = engine.plan().UnitOfTensors();
  missing_.resize(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) missing_[u] = units[u].last - units[u].first;
  local_.assign(tensors, 0);
  apply_.StepBegin();
  next_unit_ = 0;
}

void UnitStrategy::GradientReady(Engine& engine, std::size_t tensor) {
  const Unit& unit = engine.plan().units[unit_of_[tensor]];
  if (unit.sparsified == Sparsified::kAhead) {
    const TensorEntry& entry = engine.layout().tensor(tensor);
    local_[tensor] =
        engine.Sparsify({.range = entry.range(), .density = entry.dense ? 1.0 : unit.density});
  } else {
    local_[tensor] = engine.Pack({.tensor = tensor});
  }
  --missing_[unit_of_[tensor]];
  while (next_unit_ < missing_.size() && missing_[next_unit_] == 0) Launch(engine, next_unit_++);
}

void UnitStrategy::Launch(Engine& engine, std::size_t index) {
  const Unit& unit = engine.plan().units[index];
  const std::vector<Handle> parts(local_.begin() + static_cast<std::ptrdiff_t>(unit.first),
                                  local_.begin() + static_cast<std::ptrdiff_t>(unit.last));
  ExchangeRequest exchange;
  exchange.range = engine.layout().RangeOf(unit.first, unit.last);
  exchange.label = "unit " + std::to_string(index);
  switch (unit.sparsified) {
    case Sparsified::kNever:
      exchange.order.after = parts;
      break;
    case Sparsified::kAhead:
      exchange.selections = parts;
      break;
    case Sparsified::kBehind:
      exchange.selections = {engine.Sparsify({.range = exchange.range,
                                              .density = unit.density,
                                              .order = {.after = parts, .then = {}}})};
      break;
  }
  apply_.Launched(engine, engine.Exchange(std::move(exchange)));
}

void UnitStrategy::BackwardEnd(Engine& engine) { apply_.BackwardEnd(engine); }

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
       kMake},
      {"ahead",
       "each tensor is sparsified when it is ready; a unit is sent when it is complete",
       "SAFusion, HPDC 2025, section 3",
       1,
       "",
       Sparsified::kAhead,
       {},
       kMake},
      {"behind",
       "tensors are fused first; a unit is sparsified and sent when it is complete",
       "SAFusion, HPDC 2025, section 2",
       1,
       "",
       Sparsified::kBehind,
       {},
       kMake},
  };
  return kStrategies;
}

}  // namespace sparfuse
