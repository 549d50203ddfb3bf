// Keeps the anchor and the outer optimizer's state of a rank that trains for windows of steps by
// itself. When an average has arrived, moves them and the rank's parameters, and renews the inner
// optimizer's state of these parameters. All of them are in the memory of the parameters' device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/fusion/layout.hpp"
#include "core/localsteps/local_steps.hpp"
#include "core/sparsify/device_selection.hpp"

namespace sparfuse {

// The memory of the parameters of each tensor of a layout: [tensors], by position, float32. It may
// be a device's.
using ParameterView = std::vector<std::span<float>>;

// Arrays in the order of the layout. Used by one thread at a time. On a device, all work is done in
// the order of the stream that Begin gets.
class Anchors {
 public:
  // layout: outlives it. device: of the parameters. Throws Error{kOutOfMemory} if it has no room.
  Anchors(const GradientLayout& layout, const LocalSteps& steps, Device device = {});

  // Sets the anchor to these parameters, and the outer state to zero. stream: the parameters are
  // read and written in its order from now on. inner: [arrays] of the inner optimizer's state, each
  // like the parameters; only LocalSteps::inner needs them.
  void Begin(ParameterView parameters, const Stream& stream = {},
             std::vector<ParameterView> inner = {});
  // The same parameters lie in other memory from now on.
  void Move(ParameterView parameters);
  bool begun() const noexcept { return !parameters_.empty(); }
  void BeginStep() { renewed_.clear(); }

  // Writes the values of a tensor to be sent, [numel]; false if they have a NaN or an infinity.
  // array: PackRequest::array.
  bool Pack(std::size_t tensor, PackSource source, std::size_t array, std::span<float> to,
            ThreadPool& pool);
  // Applies the outer rule to a range of the layout. sum: [range], over ranks; each element is
  // first multiplied by `scale`, which makes it an average.
  // With outer_clip, moves the outer state alone, and all anchors at the `last` of the ranges that
  // are clipped together.
  void Step(Range range, std::span<const float> sum, float scale, bool last, ThreadPool& pool);
  // The same on a device. Both give the work to the stream and return. not_finite: a word on the
  // device, as CopyFiniteOnDevice's.
  void PackOnDevice(std::size_t tensor, PackSource source, std::size_t array, float* to,
                    std::uint32_t* not_finite);
  // workspace: of the stream, for norms.
  void StepOnDevice(Range range, const float* sum, float scale, bool last,
                    DeviceWorkspace& workspace);
  // Writes sum times `scale` to an array of the inner state, counted from 1. sum: [range], in the
  // memory of the parameters' device.
  void AverageInner(Range range, std::size_t array, const float* sum, float scale,
                    ThreadPool& pool);
  // Zeroes all arrays of the inner state in the range, which consists of whole tensors.
  void ResetInner(Range range);
  // The tensors of the layout that ResetInner has zeroed since BeginStep.
  std::span<const std::size_t> renewed() const noexcept { return renewed_; }
  // The parameters of a range go back to the anchor.
  void Restart(Range range);
  // Exchanges parameters and anchor, so that the anchor can be evaluated. Waits for the device.
  void Swap();

  // On a device these wait, and return copies that the next call overwrites. The second has no
  // elements if the rule has no state.
  std::span<const float> anchor(Range range) { return Of(anchor_, range, anchor_on_host_); }
  std::span<const float> outer_state(Range range) { return Of(outer_, range, outer_on_host_); }
  // Bytes of the anchor and of the state that the rule keeps.
  std::size_t bytes() const noexcept {
    return sizeof(float) * (anchor_.size() + outer_.size() + elastic_.size());
  }

 private:
  bool on_host() const noexcept { return device_.kind == DeviceKind::kHost; }
  std::span<const float> Of(const Buffer<float>& values, Range range, std::vector<float>& copy);
  // Calls body(parameters, first element in the layout, count) for the part of each tensor that
  // lies in the range, or with memory of another view.
  template <class Body>
  void ForTensors(Range range, const Body& body) {
    ForTensors(parameters_, range, body);
  }
  template <class Body>
  void ForTensors(const ParameterView& view, Range range, const Body& body);
  void RequireFits(const ParameterView& view, const char* what) const;
  const ParameterView& Inner(std::size_t array) const { return inner_.at(array - 1); }
  void Grow(Range range, std::span<const float> sum, float scale, ThreadPool& pool);
  void MoveClipped(ThreadPool& pool);
  void GrowOnDevice(Range range, const float* sum, float scale, DeviceWorkspace& workspace);
  void MoveClippedOnDevice();

  const GradientLayout& layout_;
  const LocalSteps steps_;
  const Device device_;
  Stream stream_;
  ParameterView parameters_;
  std::vector<ParameterView> inner_;  // [arrays]
  std::vector<std::size_t> renewed_;
  Buffer<float> anchor_;
  Buffer<float> outer_;    // of rules that have state
  Buffer<float> elastic_;  // with kElastic: the values sent last
  std::vector<float> anchor_on_host_, outer_on_host_;
  std::vector<Range> grown_;  // with outer_clip: ranges whose outer state is not clipped yet
  Buffer<double> squares_;    // on a device: of their outer states
  Buffer<float> clip_;        // [1] on a device: the factor of the outer state
};

}  // namespace sparfuse
