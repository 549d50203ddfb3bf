// Checks over all ranks that a step has lost no part of the gradients and residuals.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/live/live_engine.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

// Checks that sum over ranks of gradient + residual before = P * applied + sum over ranks of
// residual after, element by element, up to the rounding of these sums. For methods without
// momentum whose residuals keep all unsent elements. Elements of tensors without feedback are left
// out. Takes four copies of the gradient and two dense all-reduces, so use it in few steps.
class MassCheck {
 public:
  // loop: of the engine; outlives the check.
  explicit MassCheck(ProgressLoop& loop) : loop_(loop) {}

  // Call before the step, on all ranks, as Violations.
  void Begin(LiveEngine& engine);
  // Call when the tensor's gradient is announced; `gradient` is memory of the engine's device.
  void Announce(const LiveEngine& engine, std::size_t tensor, std::span<const float> gradient);
  // Call after FinishStep. The number of elements that violate the equation; equal on all ranks.
  std::uint64_t Violations(LiveEngine& engine);

  bool active() const noexcept { return active_; }

 private:
  void AddResidual(LiveEngine& engine, float sign);

  ProgressLoop& loop_;
  bool active_ = false;
  std::vector<float> balance_;  // [n] gradient + residual before - residual after
  std::vector<float> scale_;    // [n] sum of magnitudes, to which rounding is relative
};

}  // namespace sparfuse
