// Keeps the anchor and the outer optimizer's state of a rank that trains for windows of steps by
// itself. Moves them and the rank's parameters when an average has arrived.
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

// The memory of the parameters of each tensor of a layout: [tensors], by position, float32.
using ParameterView = std::vector<std::span<float>>;

// Host memory, in the order of the layout. Used by one thread at a time.
class Anchors {
 public:
  // layout: outlives it.
  Anchors(const GradientLayout& layout, const LocalSteps& steps);

  // Sets the anchor to these parameters, and the outer state to zero.
  void Begin(ParameterView parameters);
  // The same parameters lie in other memory from now on.
  void Move(ParameterView parameters);
  bool begun() const noexcept { return !parameters_.empty(); }

  // Writes the values of a tensor to be sent, [numel]; false if they have a NaN or an infinity.
  bool Pack(std::size_t tensor, PackSource source, std::span<float> to, ThreadPool& pool);
  // Applies the outer rule to a range of the layout. sum: [range], over ranks; each element is
  // first multiplied by `scale`, which makes it an average.
  void Step(Range range, std::span<const float> sum, float scale, ThreadPool& pool);
  // The parameters of a range go back to the anchor.
  void Restart(Range range);
  // Exchanges parameters and anchor, so that the anchor can be evaluated.
  void Swap();

  std::span<const float> anchor(Range range) const { return Of(anchor_, range); }
  // Zeros if the rule has no state.
  std::span<const float> outer_state(Range range) const { return Of(outer_, range); }
  // Bytes of the anchor and of the state that the rule keeps.
  std::size_t bytes() const noexcept {
    return sizeof(float) * (anchor_.size() + outer_.size() + elastic_.size());
  }

 private:
  static std::span<const float> Of(const Buffer<float>& values, Range range) {
    return values.host().subspan(range.begin, range.size());
  }
  // Calls body(parameters, first element in the layout, count) for the part of each tensor that
  // lies in the range.
  template <class Body>
  void ForTensors(Range range, const Body& body);

  const GradientLayout& layout_;
  const LocalSteps steps_;
  ParameterView parameters_;
  Buffer<float> anchor_;
  Buffer<float> outer_;    // of rules that have state
  Buffer<float> elastic_;  // with kElastic: the values sent last
};

}  // namespace sparfuse
