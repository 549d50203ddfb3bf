// Describes the families of models of text and questions.
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

// Describes BERT with the head for answers to questions, with the names of its authors' and
// NVIDIA's programs. As in those programs, the pooler exists and gets no gradient. Gradients come
// in the reverse order of registration, with three exceptions: bias before weight in linear layers,
// weight before bias in norms, and the word embeddings last.
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

// Describes decoder-only transformers with pre-norm blocks and with logits tied to the token
// embedding, with the names of Hugging Face's GPT-2. Gradients come in the reverse order of
// registration, but bias before weight in linear layers and weight before bias in norms. The
// embedding is ready only after the backward pass of its first use, although the logits use it,
// too.
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

// Describes recurrent language models: an embedding, layers of LSTM, and a separate decoder, built
// and named as in PyTorch's example of a word-level model. Layers' gradients come in the reverse
// order of registration. An LSTM layer is one operation: its gradients come as LibTorch's fused
// kernel delivers them.
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

// Describes neural n-gram models: an embedding with a row for every n-gram, a hidden layer over the
// rows of the last ones, and a decoder. The rows are in the order of the n-grams, so that n-grams
// that occur lie together, as in a sorted vocabulary.
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

// Describes transformer language models of post-norm encoder layers with a causal mask, built as in
// PyTorch's example of a word-level model. The reference's arrays reverse PyTorch's registration,
// in which both norms of a layer come last and the word embedding comes after all layers. Here a
// layer's gradients come as they are ready (norm2, linear2, linear1, norm1, out_proj, in_proj; bias
// before weight in linear layers), and the embedding's gradient comes last.
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
