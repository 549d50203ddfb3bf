#include "core/engine/unit_strategy.hpp"

#include <algorithm>
#include <utility>

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
    exchange.pattern = SparseSum{std::move(local)};
    return apply_.Launched(engine, engine.Exchange(std::move(exchange)));
  }
  DenseSum sum;
  for (const std::size_t t : message.tensors) {
    sum.ranges.push_back(engine.layout().tensor(t).range());
  }
  std::ranges::sort(sum.ranges, {}, &Range::begin);  // if dense tensors lie apart
  exchange.pattern = std::move(sum);
  exchange.order.after = std::move(local);
  apply_.Launched(engine, SendDense(engine, unit, std::move(exchange)));
}

Handle UnitStrategy::SendBehind(Engine& engine, const Unit& unit, Range range,
                                std::vector<Handle> packed, std::string label) {
  const Handle selected = engine.Sparsify({.range = range,
                                           .density = unit.density,
                                           .lane = unit.lane,
                                           .order = {.after = std::move(packed)}});
  return engine.Exchange({.pattern = SparseSum{{selected}}, .label = std::move(label)});
}

}  // namespace sparfuse
