// Describes recurrent language models: an embedding, layers of LSTM, and a separate decoder, built
// and named as in PyTorch's example of a word-level model. Layers' gradients come in the reverse
// order of registration. An LSTM layer is one operation: its gradients come as LibTorch's fused
// kernel delivers them.
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const LstmSize& size) {
  constexpr std::int64_t kGates = 4;
  const auto scale = [](std::int64_t inputs) {
    return 1.0 / std::sqrt(static_cast<double>(inputs));
  };
  ModelDescription model;
  model.Operation(
      {{.name = "encoder.weight", .shape = {size.vocabulary, size.embedding}, .deviation = 1}});
  const std::int64_t gates = kGates * size.hidden;
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string suffix = "_l" + std::to_string(layer);
    const std::int64_t in = layer == 0 ? size.embedding : size.hidden;
    model.Operation({{.name = "rnn.weight_ih" + suffix,
                      .shape = {gates, in},
                      .deviation = scale(in),
                      .macs = static_cast<double>(gates * in * size.window)},
                     {.name = "rnn.weight_hh" + suffix,
                      .shape = {gates, size.hidden},
                      .deviation = scale(size.hidden),
                      .macs = static_cast<double>(gates * size.hidden * size.window)},
                     {.name = "rnn.bias_ih" + suffix, .shape = {gates}},
                     {.name = "rnn.bias_hh" + suffix, .shape = {gates}}},
                    {0, 1, 3, 2});
  }
  if (!size.tied) {
    model.Linear("decoder", size.vocabulary, size.hidden, size.window, scale(size.hidden));
    return model;
  }
  model.Operation({{.name = "decoder.bias", .shape = {size.vocabulary}}});
  model.TieWeight("encoder.weight",
                  static_cast<double>(size.vocabulary * size.hidden * size.window));
  return model;
}

}  // namespace sparfuse::workloads
