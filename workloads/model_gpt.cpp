// A small decoder-only transformer: token and position embeddings, pre-norm blocks of causal
// attention and a GELU network, a last norm, and logits by the transposed token embedding (tied).
//
// Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
// Deviations: sizes; no dropout.
#include <cmath>
#include <string>
#include <vector>

#include "workloads/model_sizes.hpp"
#include "workloads/models.hpp"

namespace sparfuse {
namespace {

constexpr std::int64_t kModelWidth = 128;
constexpr std::int64_t kHeads = 4;
constexpr int kLayers = 4;
constexpr double kInitScale = 0.02;

struct Affine {  // weight [out, in] with bias, or a norm's weight [in] with bias
  at::Tensor weight;
  at::Tensor bias;
};

Affine DeclareNorm(ParameterSet& parameters, const std::string& name) {
  return {parameters.Constant(name + ".weight", {kModelWidth}, 1.0),
          parameters.Constant(name + ".bias", {kModelWidth}, 0.0)};
}

Affine DeclareLinear(ParameterSet& parameters, const std::string& name, std::int64_t out,
                     std::int64_t in, double standard_deviation) {
  return {parameters.Normal(name + ".weight", {out, in}, standard_deviation),
          parameters.Constant(name + ".bias", {out}, 0.0)};
}

at::Tensor Norm(const at::Tensor& x, const Affine& norm) {
  return at::layer_norm(x, {kModelWidth}, norm.weight, norm.bias);
}

at::Tensor Linear(const at::Tensor& x, const Affine& linear) {
  return at::linear(x, linear.weight, linear.bias);
}

struct Block {
  Affine norm1, qkv, projection, norm2, expand, contract;
};

at::Tensor Attend(const at::Tensor& x, const Block& block) {
  const std::int64_t batch = x.size(0), window = x.size(1);
  // [3, batch, heads, window, width of a head]
  const at::Tensor qkv = Linear(x, block.qkv)
                             .view({batch, window, 3, kHeads, kModelWidth / kHeads})
                             .permute({2, 0, 3, 1, 4});
  const at::Tensor mixed = at::scaled_dot_product_attention(
      qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true);
  return Linear(mixed.transpose(1, 2).reshape({batch, window, kModelWidth}), block.projection);
}

}  // namespace

ForwardPass BuildGpt(ParameterSet& parameters, std::int64_t vocabulary) {
  const at::Tensor embedding =
      parameters.Normal("embedding.weight", {vocabulary, kModelWidth}, kInitScale);
  const at::Tensor positions = parameters.Normal(
      "position.weight", {static_cast<std::int64_t>(kTextWindow), kModelWidth}, kInitScale);
  // What is added to the residual stream starts smaller, by the number of additions.
  const double residual_scale = kInitScale / std::sqrt(2.0 * kLayers);
  std::vector<Block> blocks;
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "block" + std::to_string(i + 1) + ".";
    Block block;
    block.norm1 = DeclareNorm(parameters, name + "norm1");
    block.qkv = DeclareLinear(parameters, name + "qkv", 3 * kModelWidth, kModelWidth, kInitScale);
    block.projection =
        DeclareLinear(parameters, name + "projection", kModelWidth, kModelWidth, residual_scale);
    block.norm2 = DeclareNorm(parameters, name + "norm2");
    block.expand =
        DeclareLinear(parameters, name + "expand", 4 * kModelWidth, kModelWidth, kInitScale);
    block.contract =
        DeclareLinear(parameters, name + "contract", kModelWidth, 4 * kModelWidth, residual_scale);
    blocks.push_back(block);
  }
  const Affine norm = DeclareNorm(parameters, "norm");
  return [=](const at::Tensor& tokens) {
    at::Tensor x = at::embedding(embedding, tokens) + positions.narrow(0, 0, tokens.size(1));
    for (const Block& block : blocks) {
      x = x + Attend(Norm(x, block.norm1), block);
      x = x + Linear(at::gelu(Linear(Norm(x, block.norm2), block.expand), "tanh"), block.contract);
    }
    return at::linear(Norm(x, norm), embedding);
  };
}

}  // namespace sparfuse
