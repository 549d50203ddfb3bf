// Sends each unit of the plan as soon as its last tensor is ready, in plan order.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/engine/engine.hpp"

namespace sparfuse {

// Averages exchanges after backward, on the compute lane, in launch order, as the papers'
// synchronize() does.
class ApplyAfterBackward {
 public:
  void StepBegin() {
    launched_.clear();
    backward_over_ = false;
  }
  // Call for every exchange, in launch order.
  void Launched(Engine& engine, Handle exchange) {
    if (backward_over_) {
      engine.Apply({.exchange = exchange});
    } else {
      launched_.push_back(exchange);
    }
  }
  void BackwardEnd(Engine& engine) {
    backward_over_ = true;
    for (const Handle exchange : launched_) engine.Apply({.exchange = exchange});
    launched_.clear();
  }

 private:
  std::vector<Handle> launched_;
  bool backward_over_ = false;
};

// The plan says of each unit whether it is sparsified never, ahead or behind. It also says which
// tensors of a unit that is sparsified ahead are dense, reduced or offloaded. A unit is one
// exchange, or two if it has tensors to reduce: first their all-reduce, which need not wait for the
// unit's selections, then the all-gather of the rest. Exchanges are launched in this order on the
// data channel; one that is complete early waits for its predecessors. They are averaged as
// ApplyAfterBackward does.
class UnitStrategy : public Strategy {
 public:
  void StepBegin(Engine& engine) override;
  void GradientReady(Engine& engine, std::size_t tensor) override;
  void BackwardEnd(Engine& engine) override { apply_.BackwardEnd(engine); }

 protected:
  // Requests the operations of a unit that is sparsified behind. Returns the exchange to average.
  //   range   of the unit's sparsified tensors
  //   packed  their packs: when these are done, the range is in the flat gradient
  virtual Handle SendBehind(Engine& engine, const Unit& unit, Range range,
                            std::vector<Handle> packed, std::string label);
  // The same for a unit, or part of a unit, that is sent dense. `exchange` is a DenseSum with its
  // label; `exchange.order` waits for the packs of its ranges.
  virtual Handle SendDense(Engine& engine, const Unit& /*unit*/, ExchangeRequest exchange) {
    return engine.Exchange(std::move(exchange));
  }

 private:
  struct Message {
    std::size_t unit = 0;
    bool reduced = false;              // holds the unit's reduced tensors, else the others
    std::vector<std::size_t> tensors;  // ascending
    std::size_t missing = 0;           // tensors not ready yet
  };

  void MakeMessages(const GradientLayout& layout);
  void Launch(Engine& engine, const Message& message);

  Plan plan_;                            // from which the messages were made
  std::vector<Message> messages_;        // in launch order
  std::vector<std::size_t> message_of_;  // [tensors]
  std::vector<TensorPlan> how_;          // [tensors]
  std::vector<Handle> local_;            // [tensors] the Pack or Sparsify
  std::size_t next_message_ = 0;
  ApplyAfterBackward apply_;
};

}  // namespace sparfuse
