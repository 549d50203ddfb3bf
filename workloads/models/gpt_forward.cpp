// Decoder-only transformers: token and position embeddings, pre-norm blocks of causal attention and
// a GELU network, a last norm, and logits by the transposed token embedding (tied).
//
// Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
// Deviations: nothing is dropped from attention's weights, as its fused kernel has no dropout here.
#include <string>
#include <vector>

#include "workloads/models/models.hpp"
#include "workloads/models/parameter_names.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kEpsilon = 1e-5;

struct Block {
  Affine norm1, qkv, projection, norm2, expand, contract;
};

}  // namespace

ForwardPass Build(const GptSize& size, const ParameterSet& parameters) {
  const GptParts parts = PartsOf(size.names);
  const at::Tensor embedding = parameters[parts.embedding];
  const at::Tensor positions = parameters[parts.position];
  std::vector<Block> blocks;
  for (std::int64_t i = 0; i < size.layers; ++i) {
    const std::string name = parts.block + std::to_string(i + parts.first_block) + ".";
    Block block;
    block.norm1 = Affine(parameters, name + parts.norm1);
    block.qkv = Affine(parameters, name + parts.qkv);
    block.projection = Affine(parameters, name + parts.projection);
    block.norm2 = Affine(parameters, name + parts.norm2);
    block.expand = Affine(parameters, name + parts.expand);
    block.contract = Affine(parameters, name + parts.contract);
    blocks.push_back(std::move(block));
  }
  const Affine norm(parameters, parts.norm);
  const bool transposed = size.names == GptNames::kOpenAi;
  const auto linear = [transposed](const at::Tensor& x, const Affine& affine) {
    if (!transposed) return Linear(x, affine);
    return at::addmm(affine.bias, x.flatten(0, 1), affine.weight)
        .view({x.size(0), x.size(1), affine.weight.size(1)});
  };
  const std::int64_t heads = size.heads;
  const double probability = size.dropout;
  return [=](const at::Tensor& tokens, Dropout& dropout) {
    const at::Tensor of_positions = positions.narrow(0, 0, tokens.size(1));
    const at::Tensor of_tokens = at::embedding(embedding, tokens);
    at::Tensor x = dropout(of_tokens + of_positions, probability);
    for (const Block& block : blocks) {
      const at::Tensor qkv = linear(LayerNorm(x, block.norm1, kEpsilon), block.qkv);
      x = x + dropout(linear(AttendBackwards(qkv, heads), block.projection), probability);
      const at::Tensor wide =
          at::gelu(linear(LayerNorm(x, block.norm2, kEpsilon), block.expand), "tanh");
      x = x + dropout(linear(wide, block.contract), probability);
    }
    return at::linear(LayerNorm(x, norm, kEpsilon), embedding);
  };
}

}  // namespace sparfuse::workloads
