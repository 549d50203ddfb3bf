#include "core/engine/unit_strategy.hpp"

#include <algorithm>
#include <utility>

#include "core/engine/node_shards.hpp"
#include "core/engine/owned_parts.hpp"

namespace sparfuse {

void UnitStrategy::StepBegin(Engine& engine) {
  if (plan_ != engine.plan()) {
    plan_ = engine.plan();
    MakeMessages(engine.layout());
  }
  for (Message& message : messages_) message.missing = message.tensors.size();
  local_.assign(engine.layout().tensors(), 0);
  apply_.StepBegin();
  next_message_ = 0;
}

void UnitStrategy::MakeMessages(const GradientLayout& layout) {
  const std::size_t tensors = layout.tensors();
  messages_.clear();
  message_of_.assign(tensors, 0);
  how_.resize(tensors);
  for (std::size_t t = 0; t < tensors; ++t) how_[t] = plan_.TensorOf(layout, t);
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    for (const bool reduced : {true, false}) {
      Message message{u, reduced, {}, 0};
      for (std::size_t t = plan_.units[u].first; t < plan_.units[u].last; ++t) {
        if (how_[t].reduced != reduced) continue;
        message.tensors.push_back(t);
        message_of_[t] = messages_.size();
      }
      if (!message.tensors.empty()) messages_.push_back(std::move(message));
    }
  }
}

void UnitStrategy::GradientReady(Engine& engine, std::size_t tensor) {
  Message& message = messages_[message_of_[tensor]];
  const TensorPlan& how = how_[tensor];
  if (plan_.units[message.unit].sparsified == Sparsified::kAhead && !how.reduced) {
    local_[tensor] = engine.Sparsify({.range = engine.layout().tensor(tensor).range(),
                                      .density = how.density,
                                      .lane = how.offloaded ? Lane::kHost : Lane::kCompute});
  } else {
    local_[tensor] = engine.Pack({.tensor = tensor});
  }
  --message.missing;
  while (next_message_ < messages_.size() && messages_[next_message_].missing == 0) {
    Launch(engine, messages_[next_message_++]);
  }
}

void UnitStrategy::Launch(Engine& engine, const Message& message) {
  const Unit& unit = plan_.units[message.unit];
  std::vector<Handle> local;
  for (const std::size_t t : message.tensors) local.push_back(local_[t]);
  ExchangeRequest exchange;
  exchange.label = "unit " + std::to_string(message.unit) + (message.reduced ? ", dense" : "");
  if (unit.sparsified == Sparsified::kBehind && !message.reduced) {
    return apply_.Launched(engine,
                           SendBehind(engine, unit, engine.layout().RangeOf(unit.first, unit.last),
                                      std::move(local), std::move(exchange.label)));
  }
  if (unit.sparsified == Sparsified::kAhead && !message.reduced) {
    exchange.selections = local;
  } else {
    for (const std::size_t t : message.tensors) {
      exchange.ranges.push_back(engine.layout().tensor(t).range());
    }
    std::ranges::sort(exchange.ranges, {}, &Range::begin);  // where dense tensors are apart
    exchange.order.after = local;
    return apply_.Launched(engine, SendDense(engine, unit, std::move(exchange)));
  }
  apply_.Launched(engine, engine.Exchange(std::move(exchange)));
}

Handle UnitStrategy::SendBehind(Engine& engine, const Unit& unit, Range range,
                                std::vector<Handle> packed, std::string label) {
  const Handle selected = engine.Sparsify({.range = range,
                                           .density = unit.density,
                                           .lane = unit.lane,
                                           .order = {.after = std::move(packed), .then = {}}});
  return engine.Exchange({.selections = {selected}, .label = std::move(label)});
}

Handle UnitStrategy::SendDense(Engine& engine, const Unit& /*unit*/, ExchangeRequest exchange) {
  return engine.Exchange(std::move(exchange));
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
