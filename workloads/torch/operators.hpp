// Holds the operators that several models are built from.
#pragma once

#include <string>

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

// By the statistics of the batch at hand, in evaluation too: running statistics would be a state
// that ranks had to agree on.
inline at::Tensor BatchNorm(const at::Tensor& x, const Affine& norm) {
  return at::batch_norm(x, norm.weight, norm.bias, /*running_mean=*/{}, /*running_var=*/{},
                        /*training=*/true, /*momentum=*/0.0, /*eps=*/1e-5,
                        /*cudnn_enabled=*/true);
}

// Queries, keys and values, [batch, window, width] each, to [batch, window, width].
inline at::Tensor Attend(const at::Tensor& queries, const at::Tensor& keys,
                         const at::Tensor& values, std::int64_t heads) {
  const auto divide = [heads](const at::Tensor& x) {  // [batch, heads, window, width of a head]
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  };
  const at::Tensor mixed =
      at::scaled_dot_product_attention(divide(queries), divide(keys), divide(values));
  return mixed.transpose(1, 2).reshape(queries.sizes());
}

// The same of [batch, window, 3 * width], the three side by side, each position seeing itself and
// what is before it.
inline at::Tensor AttendBackwards(const at::Tensor& queries_keys_values, std::int64_t heads) {
  const std::int64_t batch = queries_keys_values.size(0), window = queries_keys_values.size(1);
  const std::int64_t width = queries_keys_values.size(2) / 3;
  const at::Tensor qkv =
      queries_keys_values.view({batch, window, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
  const at::Tensor mixed = at::scaled_dot_product_attention(
      qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return mixed.transpose(1, 2).reshape({batch, window, width});
}

}  // namespace sparfuse::workloads
