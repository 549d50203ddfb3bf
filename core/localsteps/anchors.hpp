// Keeps the anchor and the outer optimizer's state of a rank that trains for windows of steps by
// itself, and moves them and its parameters when an average has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/localsteps/local_steps.hpp"

namespace sparfuse {

// Where the parameters of each tensor of a layout lie: [tensors], by position, float32.
using ParameterView = std::vector<std::span<float>>;

// Host memory, in the order of the layout. Used by one thread at a time.
class Anchors {
 public:
  // layout: outlives it.
  Anchors(const GradientLayout& layout, const LocalSteps& steps);

  // The anchor becomes these parameters, and the outer state zero.
  void Begin(ParameterView parameters);
  // The same parameters, elsewhere.
  void Move(ParameterView parameters);
  bool begun() const noexcept { return !parameters_.empty(); }

  // What is sent of a tensor, [numel]; false where it has a NaN or an infinity.
  bool Pack(std::size_t tensor, PackSource source, std::span<float> to, ThreadPool& pool);
  // The outer rule on a range of the layout. sum: [range], over ranks; each is multiplied with
  // `scale` first, which makes it an average.
  void Step(Range range, std::span<const float> sum, float scale, ThreadPool& pool);
  // The parameters of a range go back to the anchor.
  void Restart(Range range);
  // Parameters and anchor change places, so that the anchor can be evaluated.
  void Swap();

  std::span<const float> anchor(Range range) const { return Of(anchor_, range); }
  // Of rules without state, zeros.
  std::span<const float> outer_state(Range range) const { return Of(outer_, range); }
  // Of the anchor and what rules keep.
  std::size_t bytes() const noexcept {
    return sizeof(float) * (anchor_.size() + outer_.size() + elastic_.size());
  }

 private:
  static std::span<const float> Of(const Buffer<float>& values, Range range) {
    return values.host().subspan(range.begin, range.size());
  }
  // Calls body(parameters, first element in the layout, count) for what of each tensor lies in the
  // range.
  template <class Body>
  void ForTensors(Range range, const Body& body);

  const GradientLayout& layout_;
  const LocalSteps steps_;
  ParameterView parameters_;
  Buffer<float> anchor_;
  Buffer<float> outer_;    // of rules that have state
  Buffer<float> elastic_;  // what was sent last, with kElastic
};

}  // namespace sparfuse
