// Describes transformer language models of post-norm encoder layers with a causal mask, built as in
// PyTorch's example of a word-level model. The reference's arrays reverse PyTorch's registration,
// in which both norms of a layer come last and the word embedding comes after all layers. Here a
// layer's gradients come as they are ready (norm2, linear2, linear1, norm1, out_proj, in_proj; bias
// before weight in linear layers), and the embedding's gradient comes last.
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const TransformerSize& size) {
  constexpr double kDeviation = 0.05;
  const std::int64_t width = size.width;
  const auto mixing = static_cast<double>(size.window * size.window * width);
  ModelDescription model;
  model.Embedding("encoder", size.vocabulary, width, kDeviation);
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = "transformer_encoder.layers." + std::to_string(layer) + ".";
    const std::string attention = name + "self_attn.";
    model.Operation({{.name = attention + "in_proj_weight",
                      .shape = {3 * width, width},
                      .deviation = kDeviation,
                      .macs = static_cast<double>(3 * width * width * size.window) + 2 * mixing},
                     {.name = attention + "in_proj_bias", .shape = {3 * width}}},
                    {1, 0});
    model.Linear(attention + "out_proj", width, width, size.window, kDeviation);
    model.Norm(name + "norm1", width);
    model.Linear(name + "linear1", size.expanded, width, size.window, kDeviation);
    model.Linear(name + "linear2", width, size.expanded, size.window, kDeviation);
    model.Norm(name + "norm2", width);
  }
  model.Linear("decoder", size.vocabulary, width, size.window, kDeviation);
  return model;
}

}  // namespace sparfuse::workloads
