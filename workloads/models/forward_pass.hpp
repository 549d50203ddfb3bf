// Runs a model forward over parameters that its description declares. Each family's size builds
// one: Build(size, parameters) holds handles of the parameters, which must be those of the size's
// description.
#pragma once

#include <functional>

#include "workloads/models/model_sizes.hpp"
#include "workloads/torch/dropout.hpp"
#include "workloads/torch/parameter_set.hpp"
#include "workloads/torch/pch.hpp"

namespace sparfuse::workloads {

// Maps a batch to logits. Keeps no state between calls except running statistics of batch
// normalisation, in training.
//   images     [batch, channels, image, image] float32 -> [batch, classes]
//   text       [batch, at most window] int64 -> [batch, window, vocabulary]
//   questions  [2, batch, window] int64: words, and the segment of each (0 is the question, 1 the
//              context) -> [batch, window, 2], of the answer's first and last word;
//              [3, batch, window] if windows are padded: the third is 1 for words that exist
class ForwardPass : public std::function<at::Tensor(const at::Tensor& batch, Dropout& dropout)> {
 public:
  using function::function;
};

}  // namespace sparfuse::workloads
