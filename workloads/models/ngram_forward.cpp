// Runs neural n-gram models forward: the embeddings of the last n-grams side by side, a hidden
// layer, and logits.
//
// Source: Y. Bengio et al., "A Neural Probabilistic Language Model", JMLR 3, 2003.
// Deviations: its words are n-grams of characters, and each n-gram has its own row; ReLU replaces
// tanh, and no connection leads from the embeddings past the hidden layer. The positions before a
// window hold the first character of the vocabulary.
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {

ForwardPass Build(const NgramSize& size, const ParameterSet& parameters) {
  const at::Tensor embedding = parameters["embedding.weight"];
  const Affine hidden(parameters, "hidden");
  const Affine decoder(parameters, "decoder");
  return [=](const at::Tensor& tokens, Dropout& /*dropout*/) {
    const std::int64_t window = tokens.size(1);
    const std::int64_t reach = size.order * size.contexts;
    const at::Tensor padded = at::constant_pad_nd(tokens, {reach - 1, 0});
    std::vector<at::Tensor> rows;  // rows of each context, the earliest first: [batch, window]
    for (std::int64_t context = 0; context < size.contexts; ++context) {
      const std::int64_t first = context * size.order;
      at::Tensor row = padded.narrow(1, first, window);
      for (std::int64_t i = 1; i < size.order; ++i) {
        row = row * size.vocabulary + padded.narrow(1, first + i, window);
      }
      rows.push_back(row);
    }
    const at::Tensor x = at::embedding(embedding, at::stack(rows, 2)).flatten(2);
    return Linear(at::relu(Linear(x, hidden)), decoder);
  };
}

}  // namespace sparfuse::workloads
