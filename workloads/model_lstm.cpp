// A character-level LSTM: an embedding, two recurrent layers that start each window from zero, and
// a linear layer.
//
// Source: S. Hochreiter and J. Schmidhuber, Neural Computation 1997; W. Zaremba et al., "Recurrent
// Neural Network Regularization", 2014 (the stacked form).
// Deviations: no dropout; no state is carried from one window to the next, as samples are permuted.
#include <cmath>
#include <string>
#include <vector>

#include "workloads/models.hpp"

namespace sparfuse {
namespace {

constexpr std::int64_t kEmbeddingWidth = 64;
constexpr std::int64_t kHidden = 256;
constexpr std::int64_t kLayers = 2;
constexpr double kForgetBias = 1.0;  // remembers from the start (R. Jozefowicz et al., ICML 2015)

}  // namespace

ForwardPass BuildLstm(ParameterSet& parameters, std::int64_t vocabulary) {
  const at::Tensor embedding =
      parameters.Normal("embedding.weight", {vocabulary, kEmbeddingWidth}, 1.0);
  std::vector<at::Tensor> recurrent;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string name = "lstm" + std::to_string(layer + 1);
    const std::int64_t in = layer == 0 ? kEmbeddingWidth : kHidden;
    recurrent.push_back(parameters.Normal(name + ".input.weight", {4 * kHidden, in},
                                          1.0 / std::sqrt(static_cast<double>(in))));
    recurrent.push_back(parameters.Normal(name + ".hidden.weight", {4 * kHidden, kHidden},
                                          1.0 / std::sqrt(static_cast<double>(kHidden))));
    recurrent.push_back(parameters.Constant(name + ".input.bias", {4 * kHidden}, 0.0));
    recurrent.push_back(parameters.Constant(name + ".hidden.bias", {4 * kHidden}, 0.0));
    // Gates are in the order input, forget, cell, output.
    recurrent[recurrent.size() - 2].narrow(0, kHidden, kHidden).fill_(kForgetBias);
  }
  const at::Tensor weight = parameters.Normal("decoder.weight", {vocabulary, kHidden},
                                              1.0 / std::sqrt(static_cast<double>(kHidden)));
  const at::Tensor bias = parameters.Constant("decoder.bias", {vocabulary}, 0.0);
  return [=](const at::Tensor& tokens) {
    const at::Tensor zero = at::zeros({kLayers, tokens.size(0), kHidden}, at::kFloat);
    const at::Tensor hidden = std::get<0>(
        at::lstm(at::embedding(embedding, tokens), {zero, zero}, recurrent, /*has_biases=*/true,
                 kLayers, /*dropout=*/0.0, /*train=*/true, /*bidirectional=*/false,
                 /*batch_first=*/true));
    return at::linear(hidden, weight, bias);
  };
}

}  // namespace sparfuse
