// Runs decoder-only transformers forward: token and position embeddings, pre-norm blocks of causal
// attention and a GELU network, a last norm, and logits by the transposed token embedding (tied).
//
// Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kGptEpsilon = 1e-5;

struct GptBlock {
  Affine norm1, qkv, projection, norm2, expand, contract;
};

}  // namespace

ForwardPass Build(const GptSize& size, const ParameterSet& parameters) {
  const at::Tensor embedding = parameters["wte.weight"];
  const at::Tensor positions = parameters["wpe.weight"];
  std::vector<GptBlock> blocks;
  for (std::int64_t i = 0; i < size.layers; ++i) {
    const std::string name = "h." + std::to_string(i) + ".";
    GptBlock block;
    block.norm1 = Affine(parameters, name + "ln_1");
    block.qkv = Affine(parameters, name + "attn.c_attn");
    block.projection = Affine(parameters, name + "attn.c_proj");
    block.norm2 = Affine(parameters, name + "ln_2");
    block.expand = Affine(parameters, name + "mlp.c_fc");
    block.contract = Affine(parameters, name + "mlp.c_proj");
    blocks.push_back(std::move(block));
  }
  const Affine norm(parameters, "ln_f");
  const bool rows_are_outputs = size.rows_are_outputs;
  const auto linear = [rows_are_outputs](const at::Tensor& x, const Affine& affine) {
    if (rows_are_outputs) return Linear(x, affine);
    return at::addmm(affine.bias, x.flatten(0, 1), affine.weight)
        .view({x.size(0), x.size(1), affine.weight.size(1)});
  };
  const std::int64_t heads = size.heads;
  const double probability = size.dropout, of_attention = size.attention_dropout;
  return [=](const at::Tensor& tokens, Dropout& dropout) {
    const at::Tensor of_positions = positions.narrow(0, 0, tokens.size(1));
    const at::Tensor of_tokens = at::embedding(embedding, tokens);
    at::Tensor x = dropout(of_tokens + of_positions, probability);
    for (const GptBlock& block : blocks) {
      const at::Tensor qkv = linear(LayerNorm(x, block.norm1, kGptEpsilon), block.qkv);
      const at::Tensor mixed = AttendBackwards(qkv, heads, of_attention, dropout);
      x = x + dropout(linear(mixed, block.projection), probability);
      const at::Tensor wide =
          at::gelu(linear(LayerNorm(x, block.norm2, kGptEpsilon), block.expand), "tanh");
      x = x + dropout(linear(wide, block.contract), probability);
    }
    return at::linear(LayerNorm(x, norm, kGptEpsilon), embedding);
  };
}

}  // namespace sparfuse::workloads
