// Holds the step at hand of a LiveEngine: the gradients that were announced, the packed and the
// averaged gradient, the clock and the spans. The engine and its lanes share it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/device/device.hpp"
#include "core/engine/timeline.hpp"
#include "core/fusion/layout.hpp"

namespace sparfuse {

struct LiveStep {
  using Clock = std::chrono::steady_clock;

  // of_layout: outlives it.
  LiveStep(const GradientLayout& of_layout, Device device);

  void Begin(std::uint64_t step, bool verified);
  double Now() const;  // seconds since Begin
  // True for a range within one tensor that has not been packed: it is selected from where the
  // gradient lies. Others are selected from `flat`.
  bool ReadsGradient(Range range) const;
  std::span<float> AveragedRange(Range range) const {  // on the host
    return averaged.host().subspan(range.begin, range.size());
  }

  const GradientLayout& layout;
  Buffer<float> flat;  // packed gradients; after a dense exchange their sum
  Buffer<float> averaged;
  Buffer<float> zeros;  // the gradient of tensors that got none

  std::uint64_t number = 0;
  bool verify = false;
  Clock::time_point begin;
  std::vector<std::span<const float>> gradients;  // [tensors]; empty: not announced
  std::vector<std::uint8_t> packed;               // [tensors]
  Timeline timeline;
};

}  // namespace sparfuse
