#include "core/engine/live/live_state.hpp"

#include <algorithm>

namespace sparfuse {

LiveStep::LiveStep(const GradientLayout& of_layout, Device device)
    : layout(of_layout),
      flat(layout.numel(), device, "the packed gradient"),
      averaged(layout.numel(), device, "the averaged gradient"),
      zeros(layout.largest_tensor(), device, "the gradient of tensors that have none"),
      gradients(layout.tensors()),
      packed(layout.tensors()) {}

void LiveStep::Begin(std::uint64_t step, bool verified) {
  number = step;
  verify = verified;
  timeline.Clear();
  std::fill(gradients.begin(), gradients.end(), std::span<const float>());
  std::fill(packed.begin(), packed.end(), std::uint8_t{0});
  begin = Clock::now();
}

double LiveStep::Now() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }

bool LiveStep::ReadsGradient(Range range) const {
  const std::size_t tensor = layout.PositionOf(range.begin);
  return range.end <= layout.tensor(tensor).range().end && packed[tensor] == 0;
}

}  // namespace sparfuse
