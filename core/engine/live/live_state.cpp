#include "core/engine/live/live_state.hpp"

#include <algorithm>

namespace sparfuse {

LiveStep::LiveStep(const GradientLayout& of_layout, const LiveConfig& config)
    : layout(of_layout),
      flat(layout.numel(), config.device, "the packed gradient"),
      averaged(config.local_steps ? 0 : layout.numel(), config.device, "the averaged gradient"),
      zeros(layout.largest_tensor(), config.device, "zeros for tensors without a gradient"),
      gradients(layout.tensors()),
      averages(layout.tensors()),
      packed(layout.tensors()),
      checked(layout.tensors()) {
  if (config.local_steps) anchors.emplace(layout, *config.local_steps);
}

void LiveStep::Begin(std::uint64_t step, bool verified) {
  number = step;
  verify = verified;
  timeline.Clear();
  std::fill(gradients.begin(), gradients.end(), std::span<const float>());
  std::fill(averages.begin(), averages.end(), std::span<float>());
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  for (std::atomic<bool>& each : checked) each.store(false, std::memory_order_relaxed);
  begin = Clock::now();
}

double LiveStep::At(Clock::time_point time) const {
  return std::chrono::duration<double>(time - begin).count();
}

std::span<float> LiveStep::AverageOf(std::size_t tensor) const {
  if (averages[tensor].data() != nullptr) return averages[tensor];
  const Range range = layout.tensor(tensor).range();
  return averaged.host().subspan(range.begin, range.size());
}

bool LiveStep::ReadsGradient(Range range) const {
  const std::size_t tensor = layout.PositionOf(range.begin);
  return range.end <= layout.tensor(tensor).range().end && packed[tensor] == 0;
}

}  // namespace sparfuse
