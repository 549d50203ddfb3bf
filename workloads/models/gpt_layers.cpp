// Decoder-only transformers with norms in front and the embedding of tokens used again for the
// logits. Gradients come in the reverse of the registration, but bias before weight in linear
// layers, weight before bias in norms; the embedding, though the logits use it, is ready only after
// its first use.
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"
#include "workloads/models/parameter_names.hpp"

namespace sparfuse::workloads {

GptParts PartsOf(GptNames names) {
  if (names == GptNames::kOpenAi) {
    return {"wte.weight", "wpe.weight", "h.",         0,     "ln_1", "attn.c_attn", "attn.c_proj",
            "ln_2",       "mlp.c_fc",   "mlp.c_proj", "ln_f"};
  }
  return {"embedding.weight", "position.weight", "block",  1,          "norm1", "qkv",
          "projection",       "norm2",           "expand", "contract", "norm"};
}

ModelDescription Describe(const GptSize& size) {
  constexpr std::int64_t kWidening = 4;
  const GptParts parts = PartsOf(size.names);
  const std::int64_t width = size.width;
  // What is added to the residual stream starts smaller, by the number of additions.
  const double residual = size.deviation / std::sqrt(2.0 * static_cast<double>(size.layers));
  ModelDescription model;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in,
                          double deviation, double further_macs) {
    const bool transposed = size.names == GptNames::kOpenAi;
    model.Operation({{.name = name + ".weight",
                      .shape = transposed ? std::vector{in, out} : std::vector{out, in},
                      .deviation = deviation,
                      .macs = static_cast<double>(out * in * size.window) + further_macs},
                     {.name = name + ".bias", .shape = {out}}},
                    {1, 0});
  };
  model.Operation(
      {{.name = parts.embedding, .shape = {size.vocabulary, width}, .deviation = size.deviation}});
  const std::size_t embedding = 0;
  model.Operation(
      {{.name = parts.position, .shape = {size.window, width}, .deviation = size.deviation}});
  model.LastRunsBefore(embedding);
  // Products with what comes later in the window are counted, as the full matrices are multiplied.
  const double mixing = 2.0 * static_cast<double>(size.window * size.window * width);
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = parts.block + std::to_string(layer + parts.first_block) + ".";
    model.Norm(name + parts.norm1, width);
    linear(name + parts.qkv, 3 * width, width, size.deviation, mixing);
    linear(name + parts.projection, width, width, residual, 0);
    model.Norm(name + parts.norm2, width);
    linear(name + parts.expand, kWidening * width, width, size.deviation, 0);
    linear(name + parts.contract, width, kWidening * width, residual, 0);
  }
  model.Norm(parts.norm, width);
  model.UseAgain(parts.embedding, static_cast<double>(size.vocabulary * width * size.window));
  return model;
}

}  // namespace sparfuse::workloads
