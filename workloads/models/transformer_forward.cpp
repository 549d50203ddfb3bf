// Runs word-level transformer language models forward: a scaled embedding with sines for positions,
// post-norm encoder layers with a causal mask, and a separate decoder.
//
// Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, in the form of PyTorch's
// example of a word-level language model.
#include <cmath>
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kEpsilon = 1e-5;

struct Layer {
  Layer(const ParameterSet& parameters, const std::string& name)
      : output(parameters, name + "self_attn.out_proj"),
        norm1(parameters, name + "norm1"),
        expand(parameters, name + "linear1"),
        contract(parameters, name + "linear2"),
        norm2(parameters, name + "norm2") {
    input.weight = parameters[name + "self_attn.in_proj_weight"];
    input.bias = parameters[name + "self_attn.in_proj_bias"];
  }
  at::Tensor operator()(const at::Tensor& x, const TransformerSize& size, Dropout& dropout) const {
    const double probability = size.dropout;
    const at::Tensor mixed = Linear(
        AttendBackwards(Linear(x, input), size.heads, size.attention_dropout, dropout), output);
    const at::Tensor y = LayerNorm(x + dropout(mixed, probability), norm1, kEpsilon);
    const at::Tensor wide = dropout(at::relu(Linear(y, expand)), probability);
    return LayerNorm(y + dropout(Linear(wide, contract), probability), norm2, kEpsilon);
  }
  Affine input, output, norm1, expand, contract, norm2;
};

// [window, width]: alternating sines and cosines, with wavelengths from 2 pi to 20,000 pi.
at::Tensor Waves(std::int64_t window, std::int64_t width) {
  at::Tensor waves = at::empty({window, width}, at::kFloat);
  float* out = waves.mutable_data_ptr<float>();
  for (std::int64_t position = 0; position < window; ++position) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(width);
      const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
      *out++ = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return waves;
}

}  // namespace

ForwardPass Build(const TransformerSize& size, const ParameterSet& parameters) {
  const at::Tensor embedding = parameters["encoder.weight"];
  const at::Tensor waves = Waves(size.window, size.width).to(embedding.device());
  std::vector<Layer> layers;
  for (std::int64_t i = 0; i < size.layers; ++i) {
    layers.emplace_back(parameters, "transformer_encoder.layers." + std::to_string(i) + ".");
  }
  const Affine decoder(parameters, "decoder");
  const double scale = std::sqrt(static_cast<double>(size.width));
  const double probability = size.dropout;
  return [=](const at::Tensor& tokens, Dropout& dropout) {
    at::Tensor x = dropout(
        at::embedding(embedding, tokens) * scale + waves.narrow(0, 0, tokens.size(1)), probability);
    for (const Layer& layer : layers) x = layer(x, size, dropout);
    return Linear(x, decoder);
  };
}

}  // namespace sparfuse::workloads
