// Sends each unit of the plan as soon as its last tensor is ready, in plan order.
#pragma once

#include <cstddef>
#include <vector>

#include "core/engine/apply_after_backward.hpp"
#include "core/engine/engine.hpp"

namespace sparfuse {

// Sparsification never, ahead or behind follows from the units. Units are launched in plan order on
// the data channel (a unit that is complete early waits for its predecessors), averaged on the
// compute lane after backward, in launch order, as the papers' synchronize() does.
class UnitStrategy final : public Strategy {
 public:
  void StepBegin(Engine& engine) override;
  void GradientReady(Engine& engine, std::size_t tensor) override;
  void BackwardEnd(Engine& engine) override;

 private:
  void Launch(Engine& engine, std::size_t unit);

  std::vector<std::size_t> unit_of_;  // [tensors]
  std::vector<std::size_t> missing_;  // [units] tensors not ready yet
  std::vector<Handle> local_;         // [tensors] pack or sparsify
  std::size_t next_unit_ = 0;
  ApplyAfterBackward apply_;
};

}  // namespace sparfuse
