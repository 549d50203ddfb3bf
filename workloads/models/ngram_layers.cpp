// Describes neural n-gram models: an embedding with a row for every n-gram, a hidden layer over the
// rows of the last ones, and a decoder. The rows are in the order of the n-grams, so that n-grams
// that occur lie together, as in a sorted vocabulary.
#include <cmath>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const NgramSize& size) {
  const auto scale = [](std::int64_t inputs) {
    return 1.0 / std::sqrt(static_cast<double>(inputs));
  };
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i < size.order; ++i) rows *= size.vocabulary;
  const std::int64_t inputs = size.contexts * size.width;
  ModelDescription model;
  model.Embedding("embedding", rows, size.width, 1);
  model.Linear("hidden", size.hidden, inputs, size.window, scale(inputs));
  model.Linear("decoder", size.vocabulary, size.hidden, size.window, scale(size.hidden));
  return model;
}

}  // namespace sparfuse::workloads
