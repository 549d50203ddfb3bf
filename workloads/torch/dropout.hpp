// Draws the elements that a forward pass drops, the same on every device; without it the pass is an
// evaluation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "workloads/torch/pch.hpp"

namespace sparfuse::workloads {

struct DroppedFrom {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // bits are drawn in the order of the memory
  double probability = 0;
  bool operator==(const DroppedFrom&) const = default;
};

// Sets elements to 0 at random and scales the others up, in training. It has random bits of its
// own, since ranks may share a process. The host's generator makes them, and they are copied to the
// device. That takes the host milliseconds for a large model, so the bits of the next pass can be
// drawn ahead.
class Dropout {
 public:
  Dropout() = default;  // evaluation: drops nothing
  // ahead: the coming draws, in order, as asked() of an earlier pass lists them; or nothing.
  Dropout(std::uint64_t seed, at::Device device, std::vector<DroppedFrom> ahead = {});

  // x is on the device. Of the type of x; elements are scaled in float32.
  at::Tensor operator()(const at::Tensor& x, double probability);

  // As above, for tensors with many times a layer's elements, like attention's weights: bits are
  // the hash of an element's position, made on the device.
  at::Tensor OfMany(const at::Tensor& x, double probability);

  // False in an evaluation.
  bool training() const { return generator_.defined(); }

  const std::vector<DroppedFrom>& asked() const noexcept { return asked_; }

 private:
  // For each element 0, or the factor of a kept element; on the device.
  at::Tensor Draw(const DroppedFrom& from);

  at::Generator generator_;
  std::uint64_t seed_ = 0;
  std::uint64_t many_ = 0;  // calls of OfMany
  at::Device device_ = at::kCPU;
  std::vector<DroppedFrom> asked_;  // drawn ahead, or drawn
  std::vector<at::Tensor> ahead_;
  std::size_t used_ = 0;  // of ahead_

 public:
  // The initial states of recurrent layers, and their final states after the pass: [hidden state,
  // cell state] a layer. null: they begin from zero. This object does not own it.
  std::vector<std::array<at::Tensor, 2>>* state = nullptr;
};

}  // namespace sparfuse::workloads
