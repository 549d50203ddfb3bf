// Holds the operators that several models are built from.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "workloads/torch/dropout.hpp"
#include "workloads/torch/parameter_set.hpp"
#include "workloads/torch/pch.hpp"

namespace sparfuse::workloads {

// A linear layer's weight [out, in] or a norm's weight [width], with their bias.
struct Affine {
  Affine() = default;
  Affine(const ParameterSet& parameters, const std::string& name)
      : weight(parameters[name + ".weight"]), bias(parameters[name + ".bias"]) {}

  at::Tensor weight;
  at::Tensor bias;
};

inline at::Tensor Linear(const at::Tensor& x, const Affine& linear) {
  return at::linear(x, linear.weight, linear.bias);
}

inline at::Tensor LayerNorm(const at::Tensor& x, const Affine& norm, double epsilon) {
  return at::layer_norm(x, norm.weight.sizes(), norm.weight, norm.bias, epsilon);
}

// A batch normalisation with its running statistics.
struct BatchNorm : Affine {
  BatchNorm() = default;
  BatchNorm(const ParameterSet& parameters, const std::string& name)
      : Affine(parameters, name), running(parameters.RunningOf(name)) {}

  // In training it uses the statistics of the batch, and a tenth of them goes into the running
  // ones; else it uses the running ones. As in PyTorch, the running variance is the unbiased one.
  at::Tensor operator()(const at::Tensor& x, const Dropout& dropout) const {
    return at::batch_norm(x, weight, bias, running.mean, running.variance, dropout.training(),
                          /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn_enabled=*/true);
  }

  ParameterSet::Running running;
};

struct Attention {
  std::int64_t heads = 1;
  double dropout = 0;      // of the weights
  bool backwards = false;  // each position sees itself and the positions before it
  // Which keys are seen, [batch, 1, 1, window] bool; undefined: all.
  at::Tensor mask = {};
};

// Queries, keys and values, [batch, heads, window, width of a head] each, to [batch, window,
// width]. If weights are dropped, LibTorch's fused kernels are not used.
inline at::Tensor Mix(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                      const Attention& attention, Dropout& dropout) {
  at::Tensor mixed;
  if (dropout.training() && attention.dropout > 0) {
    at::Tensor scores =
        at::matmul(queries, keys.transpose(2, 3)) / std::sqrt(static_cast<double>(queries.size(3)));
    const double hidden = -std::numeric_limits<float>::infinity();
    if (attention.mask.defined()) scores = scores.masked_fill(attention.mask.logical_not(), hidden);
    if (attention.backwards) {
      const std::int64_t window = queries.size(2);
      const at::Tensor later =
          at::ones({window, window}, queries.options().dtype(at::kBool)).triu(1);
      scores = scores.masked_fill(later, hidden);
    }
    mixed = at::matmul(dropout.OfMany(at::softmax(scores, 3), attention.dropout), values);
  } else {
    std::optional<at::Tensor> mask;
    if (attention.mask.defined()) mask = attention.mask;
    mixed = at::scaled_dot_product_attention(queries, keys, values, mask, /*dropout_p=*/0.0,
                                             attention.backwards);
  }
  return mixed.transpose(1, 2).reshape(
      {queries.size(0), queries.size(2), queries.size(1) * queries.size(3)});
}

// The same of [batch, window, width] each.
inline at::Tensor Attend(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, const Attention& attention, Dropout& dropout) {
  const auto divide = [&](const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), attention.heads, x.size(2) / attention.heads})
        .transpose(1, 2);
  };
  return Mix(divide(queries), divide(keys), divide(values), attention, dropout);
}

// The same of [batch, window, 3 * width], the three side by side, each position seeing itself and
// the positions before it.
inline at::Tensor AttendBackwards(const at::Tensor& queries_keys_values, std::int64_t heads,
                                  double probability, Dropout& dropout) {
  const std::int64_t batch = queries_keys_values.size(0), window = queries_keys_values.size(1);
  const std::int64_t width = queries_keys_values.size(2) / 3;
  const at::Tensor qkv =
      queries_keys_values.view({batch, window, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  return Mix(qkv[0], qkv[1], qkv[2], {.heads = heads, .dropout = probability, .backwards = true},
             dropout);
}

}  // namespace sparfuse::workloads
