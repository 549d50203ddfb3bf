// Runs LSTM language models forward: an embedding, recurrent layers that start each window from
// zero or from the end of the last window, and a linear layer.
//
// Source: S. Hochreiter and J. Schmidhuber, Neural Computation 1997; W. Zaremba et al., "Recurrent
// Neural Network Regularization", 2014 (the stacked form, and the places of dropout).
// Deviations: in bfloat16 the recurrent layers stay in float32, because autocast would compute
// cuDNN's layers in float16, whatever its type. Parameters have the layout of the gradients and not
// the one that cuDNN wants. Every forward pass therefore copies a layer's parameters together,
// within its time; nn.LSTM keeps them together. For 66 million parameters the copy is estimated at
// 0.1 to 0.3 ms (4.8 TB/s), not measured.
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kForgetBias = 1.0;  // remembers from the start (R. Jozefowicz et al., ICML 2015)

}  // namespace

ForwardPass Build(const LstmSize& size, const ParameterSet& parameters) {
  const at::Tensor embedding = parameters["encoder.weight"];
  std::vector<std::vector<at::Tensor>> layers;
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string suffix = "_l" + std::to_string(layer);
    const at::NoGradGuard no_graph;
    // Gates are in the order input, forget, cell, output.
    if (!parameters.has_published_values()) {
      parameters["rnn.bias_ih" + suffix].narrow(0, size.hidden, size.hidden).fill_(kForgetBias);
    }
    layers.push_back({parameters["rnn.weight_ih" + suffix], parameters["rnn.weight_hh" + suffix],
                      parameters["rnn.bias_ih" + suffix], parameters["rnn.bias_hh" + suffix]});
  }
  Affine decoder;
  decoder.weight = size.tied ? embedding : parameters["decoder.weight"];
  decoder.bias = parameters["decoder.bias"];
  const std::int64_t hidden = size.hidden;
  const double probability = size.dropout;
  return [=](const at::Tensor& tokens, Dropout& dropout) {
    const at::Tensor zero = at::zeros({1, tokens.size(0), hidden}, embedding.options());
    at::Tensor x = at::embedding(embedding, tokens);
    const bool goes_on = dropout.state != nullptr && dropout.state->size() == layers.size() &&
                         dropout.state->front()[0].size(1) == tokens.size(0);
    std::vector<std::array<at::Tensor, 2>> left;
    for (const std::vector<at::Tensor>& layer : layers) {
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      at::Tensor state = zero, cell = zero;
      if (goes_on) {
        state = (*dropout.state)[left.size()][0];
        cell = (*dropout.state)[left.size()][1];
      }
      std::tie(x, state, cell) =
          at::lstm(dropout(x, probability), {state, cell}, layer, /*has_biases=*/true,
                   /*num_layers=*/1, /*dropout=*/0.0, /*train=*/true, /*bidirectional=*/false,
                   /*batch_first=*/true);
      left.push_back({state.detach(), cell.detach()});
    }
    if (dropout.state != nullptr) *dropout.state = std::move(left);
    return Linear(dropout(x, probability), decoder);
  };
}

}  // namespace sparfuse::workloads
