// Describes decoder-only transformers with pre-norm blocks and with logits tied to the token
// embedding, with the names of Hugging Face's GPT-2. Gradients come in the reverse order of
// registration, but bias before weight in linear layers and weight before bias in norms. The
// embedding is ready only after the backward pass of its first use, although the logits use it,
// too.
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const GptSize& size) {
  constexpr std::int64_t kWidening = 4;
  const std::int64_t width = size.width;
  // Layers that add to the residual stream start smaller, by the number of additions.
  const double residual = size.deviation / std::sqrt(2.0 * static_cast<double>(size.layers));
  ModelDescription model;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in,
                          double deviation, double further_macs) {
    model.Operation({{.name = name + ".weight",
                      .shape = size.rows_are_outputs ? std::vector{out, in} : std::vector{in, out},
                      .deviation = deviation,
                      .macs = static_cast<double>(out * in * size.window) + further_macs},
                     {.name = name + ".bias", .shape = {out}}},
                    {1, 0});
  };
  model.Operation(
      {{.name = "wte.weight", .shape = {size.vocabulary, width}, .deviation = size.deviation}});
  const std::size_t embedding = 0;
  model.Operation(
      {{.name = "wpe.weight", .shape = {size.window, width}, .deviation = size.deviation}});
  model.MoveLastBefore(embedding);
  // The count includes products with later positions of the window, as the full matrices are
  // multiplied.
  const double mixing = 2.0 * static_cast<double>(size.window * size.window * width);
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = "h." + std::to_string(layer) + ".";
    model.Norm(name + "ln_1", width);
    linear(name + "attn.c_attn", 3 * width, width, size.deviation, mixing);
    linear(name + "attn.c_proj", width, width, residual, 0);
    model.Norm(name + "ln_2", width);
    linear(name + "mlp.c_fc", kWidening * width, width, size.deviation, 0);
    linear(name + "mlp.c_proj", width, kWidening * width, residual, 0);
  }
  model.Norm("ln_f", width);
  model.TieWeight("wte.weight", static_cast<double>(size.vocabulary * width * size.window));
  return model;
}

}  // namespace sparfuse::workloads
