// Recurrent language models: an embedding, layers of LSTM, and a decoder of its own, as PyTorch's
// example of a word-level model is built. Gradients come in the reverse of the registration by
// layers; within a layer of LSTM, one operation, as LibTorch's fused kernel delivers them.
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"
#include "workloads/models/parameter_names.hpp"

namespace sparfuse::workloads {

LstmParts PartsOf(LstmNames names, std::int64_t layer) {
  if (names == LstmNames::kPyTorch) {
    const std::string suffix = "_l" + std::to_string(layer);
    return {"encoder.weight", "rnn.weight_ih" + suffix, "rnn.weight_hh" + suffix,
            "rnn.bias_ih" + suffix, "rnn.bias_hh" + suffix};
  }
  const std::string name = "lstm" + std::to_string(layer + 1);
  return {"embedding.weight", name + ".input.weight", name + ".hidden.weight", name + ".input.bias",
          name + ".hidden.bias"};
}

ModelDescription Describe(const LstmSize& size) {
  constexpr std::int64_t kGates = 4;
  const auto scale = [](std::int64_t inputs) {
    return 1.0 / std::sqrt(static_cast<double>(inputs));
  };
  ModelDescription model;
  model.Operation({{.name = PartsOf(size.names, 0).embedding,
                    .shape = {size.vocabulary, size.embedding},
                    .deviation = 1}});
  const std::int64_t gates = kGates * size.hidden;
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const LstmParts parts = PartsOf(size.names, layer);
    const std::int64_t in = layer == 0 ? size.embedding : size.hidden;
    model.Operation({{.name = parts.input_weight,
                      .shape = {gates, in},
                      .deviation = scale(in),
                      .macs = static_cast<double>(gates * in * size.window)},
                     {.name = parts.hidden_weight,
                      .shape = {gates, size.hidden},
                      .deviation = scale(size.hidden),
                      .macs = static_cast<double>(gates * size.hidden * size.window)},
                     {.name = parts.input_bias, .shape = {gates}},
                     {.name = parts.hidden_bias, .shape = {gates}}},
                    {0, 1, 3, 2});
  }
  model.Linear("decoder", size.vocabulary, size.hidden, size.window, scale(size.hidden));
  return model;
}

}  // namespace sparfuse::workloads
