// Runs vision transformers forward: an image as a row of patches behind a token for its class,
// pre-norm encoder blocks, and a linear layer over the class token.
//
// Source: A. Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021.
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kVitEpsilon = 1e-12;  // as in Hugging Face's norms

struct VitBlock {
  VitBlock(const ParameterSet& parameters, const std::string& name)
      : norm1(parameters, name + "layernorm_before"),
        query(parameters, name + "attention.attention.query"),
        key(parameters, name + "attention.attention.key"),
        value(parameters, name + "attention.attention.value"),
        output(parameters, name + "attention.output.dense"),
        norm2(parameters, name + "layernorm_after"),
        expand(parameters, name + "intermediate.dense"),
        contract(parameters, name + "output.dense") {}
  at::Tensor operator()(const at::Tensor& x, std::int64_t heads, Dropout& dropout) const {
    const at::Tensor a = LayerNorm(x, norm1, kVitEpsilon);
    const at::Tensor queries = Linear(a, query);
    const at::Tensor keys = Linear(a, key);
    const at::Tensor values = Linear(a, value);
    const at::Tensor y =
        x + Linear(Attend(queries, keys, values, {.heads = heads}, dropout), output);
    return y + Linear(at::gelu(Linear(LayerNorm(y, norm2, kVitEpsilon), expand)), contract);
  }
  Affine norm1, query, key, value, output, norm2, expand, contract;
};

}  // namespace

ForwardPass Build(const VitSize& size, const ParameterSet& parameters) {
  const Affine patches(parameters, "vit.embeddings.patch_embeddings.projection");
  const at::Tensor class_token = parameters["vit.embeddings.cls_token"];
  const at::Tensor positions = parameters["vit.embeddings.position_embeddings"];
  std::vector<VitBlock> blocks;
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    blocks.emplace_back(parameters, "vit.encoder.layer." + std::to_string(layer) + ".");
  }
  const Affine norm(parameters, "vit.layernorm");
  const Affine classifier(parameters, "classifier");
  const std::int64_t patch = size.patch, heads = size.heads;
  return [=](const at::Tensor& images, Dropout& dropout) {
    const at::Tensor row = at::conv2d(images, patches.weight, patches.bias, at::IntArrayRef(patch))
                               .flatten(2)
                               .transpose(1, 2);
    at::Tensor x = at::cat({class_token.expand({images.size(0), -1, -1}), row}, 1) + positions;
    for (const VitBlock& block : blocks) x = block(x, heads, dropout);
    return Linear(LayerNorm(x, norm, kVitEpsilon).select(1, 0), classifier);
  };
}

}  // namespace sparfuse::workloads
