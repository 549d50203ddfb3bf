// The models: each declares its parameters and returns its forward pass.
#pragma once

#include <cstdint>
#include <functional>

#include "workloads/parameter_set.hpp"
#include "workloads/pch.hpp"

namespace sparfuse {

// Maps a batch to logits. Holds handles of the declared parameters; keeps no state between calls.
using ForwardPass = std::function<at::Tensor(const at::Tensor& batch)>;

// images [batch, 1, 28, 28] float32 -> [batch, classes]
ForwardPass BuildResnet(ParameterSet& parameters, std::int64_t classes);

// tokens [batch, window <= kTextWindow] int64 -> [batch, window, vocabulary]
ForwardPass BuildGpt(ParameterSet& parameters, std::int64_t vocabulary);
ForwardPass BuildLstm(ParameterSet& parameters, std::int64_t vocabulary);

}  // namespace sparfuse
