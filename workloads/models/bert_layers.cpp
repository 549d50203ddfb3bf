// Describes BERT with the head for answers to questions, with the names of its authors' and
// NVIDIA's programs. As in those programs, the pooler exists and gets no gradient. Gradients come
// in the reverse order of registration, with three exceptions: bias before weight in linear layers,
// weight before bias in norms, and the word embeddings last.
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const BertSize& size) {
  constexpr std::int64_t kSegments = 2;
  constexpr std::int64_t kAnswerEnds = 2;
  const std::int64_t width = size.width;
  const auto mixing = static_cast<double>(size.window * size.window * width);
  ModelDescription model;
  model.Embedding("embeddings.word_embeddings", size.vocabulary, width, size.deviation);
  model.Embedding("embeddings.position_embeddings", size.positions, width, size.deviation);
  model.Embedding("embeddings.token_type_embeddings", kSegments, width, size.deviation);
  model.Norm("embeddings.LayerNorm", width);
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = "encoder.layer." + std::to_string(layer) + ".";
    const auto linear = [&](const char* part, std::int64_t out, std::int64_t in, double further) {
      model.Linear(name + part, out, in, size.window, size.deviation, further);
    };
    linear("attention.self.query", width, width, mixing / 2);
    linear("attention.self.key", width, width, mixing / 2);
    linear("attention.self.value", width, width, mixing);
    linear("attention.output.dense", width, width, 0);
    model.Norm(name + "attention.output.LayerNorm", width);
    linear("intermediate.dense", size.expanded, width, 0);
    linear("output.dense", width, size.expanded, 0);
    model.Norm(name + "output.LayerNorm", width);
  }
  model.WithoutGradient(
      {.name = "pooler.dense.weight", .shape = {width, width}, .deviation = size.deviation});
  model.WithoutGradient({.name = "pooler.dense.bias", .shape = {width}});
  model.Linear("qa_outputs", kAnswerEnds, width, size.window, size.deviation);
  return model;
}

}  // namespace sparfuse::workloads
