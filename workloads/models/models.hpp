// Builds the models' forward passes, over parameters that their descriptions declare.
#pragma once

#include <cstdint>
#include <functional>

#include "workloads/models/model_sizes.hpp"
#include "workloads/torch/dropout.hpp"
#include "workloads/torch/parameter_set.hpp"
#include "workloads/torch/pch.hpp"

namespace sparfuse::workloads {

// Maps a batch to logits; keeps no state between calls.
//   images     [batch, channels, image, image] float32 -> [batch, classes]
//   text       [batch, at most window] int64 -> [batch, window, vocabulary]
//   questions  [2, batch, window] int64, words and then which segment each belongs to (0 is the
//              question, 1 the context) -> [batch, window, 2], of the answer's first and last word
using ForwardPass = std::function<at::Tensor(const at::Tensor& batch, Dropout& dropout)>;

// Holds handles of the parameters, which have to be those of the size's description.
ForwardPass Build(const DigitsResnetSize& size, const ParameterSet& parameters);
ForwardPass Build(const ResnetSize& size, const ParameterSet& parameters);
ForwardPass Build(const VggSize& size, const ParameterSet& parameters);
ForwardPass Build(const VitSize& size, const ParameterSet& parameters);
ForwardPass Build(const BertSize& size, const ParameterSet& parameters);
ForwardPass Build(const GptSize& size, const ParameterSet& parameters);
ForwardPass Build(const LstmSize& size, const ParameterSet& parameters);
ForwardPass Build(const TransformerSize& size, const ParameterSet& parameters);

}  // namespace sparfuse::workloads
