// From a cell's configuration to the parts that run it; used by live and modelled trials alike.
#pragma once

#include <nlohmann/json.hpp>
#include <span>

#include "baselines/composition.hpp"

namespace sparfuse::harness {

// Throws Error{kConfig} naming what does not exist or does not fit.
Composition Compose(const nlohmann::json& config);

// Tensors in ready order, those of config.dense_tensors and config.no_feedback_tensors marked.
// Throws Error{kConfig} when one fits no tensor.
GradientLayout MakeLayout(std::span<const TensorShape> tensors, const nlohmann::json& config);

}  // namespace sparfuse::harness
