// Checks over all ranks that a step has lost nothing of what was to be sent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/live/live_engine.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

// sum over ranks of gradient + residual before = P * applied + sum over ranks of residual after,
// element by element, but for the rounding of these sums. For methods whose residuals take what is
// not sent, without momentum; elements of tensors without feedback are left out. Takes four copies
// of the gradient and two dense all-reduces: for few steps.
class MassCheck {
 public:
  // loop: of the engine; outlives the check.
  explicit MassCheck(ProgressLoop& loop) : loop_(loop) {}

  // Before the step. Collective, as Violations.
  void Begin(LiveEngine& engine);
  // As the tensor's gradient is announced; memory of the engine's device.
  void Announce(const LiveEngine& engine, std::size_t tensor, std::span<const float> gradient);
  // After FinishStep: the number of elements for which it does not hold; equal on all ranks.
  std::uint64_t Violations(LiveEngine& engine);

  bool active() const noexcept { return active_; }

 private:
  void AddResidual(LiveEngine& engine, float sign);

  ProgressLoop& loop_;
  bool active_ = false;
  std::vector<float> balance_;  // [n] gradient + residual before - residual after
  std::vector<float> scale_;    // [n] sum of magnitudes, which rounding is relative to
};

}  // namespace sparfuse
