// Averages exchanges after backward, on the compute lane, in launch order: what the papers'
// synchronize() does.
#pragma once

#include <vector>

#include "core/engine/engine.hpp"

namespace sparfuse {

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

}  // namespace sparfuse
