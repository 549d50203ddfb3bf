// Runs BERT: embeddings of words, positions and segments, post-norm encoder blocks, and a linear
// layer that scores each word as first and as last word of the answer. The pooler takes no part.
//
// Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019.
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kBertEpsilon = 1e-12;

struct BertBlock {
  BertBlock(const ParameterSet& parameters, const std::string& name)
      : query(parameters, name + "attention.self.query"),
        key(parameters, name + "attention.self.key"),
        value(parameters, name + "attention.self.value"),
        output(parameters, name + "attention.output.dense"),
        norm1(parameters, name + "attention.output.LayerNorm"),
        expand(parameters, name + "intermediate.dense"),
        contract(parameters, name + "output.dense"),
        norm2(parameters, name + "output.LayerNorm") {}
  at::Tensor operator()(const at::Tensor& x, const BertSize& size, const at::Tensor& mask,
                        Dropout& dropout) const {
    const Attention attention{.heads = size.heads, .dropout = size.attention_dropout, .mask = mask};
    const at::Tensor queries = Linear(x, query);
    const at::Tensor keys = Linear(x, key);
    const at::Tensor values = Linear(x, value);
    const at::Tensor mixed = Linear(Attend(queries, keys, values, attention, dropout), output);
    const at::Tensor y = LayerNorm(dropout(mixed, size.dropout) + x, norm1, kBertEpsilon);
    const at::Tensor wide = at::gelu(Linear(y, expand));
    return LayerNorm(dropout(Linear(wide, contract), size.dropout) + y, norm2, kBertEpsilon);
  }
  Affine query, key, value, output, norm1, expand, contract, norm2;
};

}  // namespace

ForwardPass Build(const BertSize& size, const ParameterSet& parameters) {
  const at::Tensor words = parameters["embeddings.word_embeddings.weight"];
  const at::Tensor positions = parameters["embeddings.position_embeddings.weight"];
  const at::Tensor segments = parameters["embeddings.token_type_embeddings.weight"];
  const Affine norm(parameters, "embeddings.LayerNorm");
  std::vector<BertBlock> blocks;
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    blocks.emplace_back(parameters, "encoder.layer." + std::to_string(layer) + ".");
  }
  const Affine answers(parameters, "qa_outputs");
  return [=](const at::Tensor& words_and_segments, Dropout& dropout) {
    const at::Tensor of_words = at::embedding(words, words_and_segments.select(0, 0));
    const at::Tensor of_positions = positions.narrow(0, 0, words_and_segments.size(2));
    const at::Tensor of_segments = at::embedding(segments, words_and_segments.select(0, 1));
    at::Tensor x =
        dropout(LayerNorm(of_words + of_positions + of_segments, norm, kBertEpsilon), size.dropout);
    at::Tensor mask;  // undefined if all windows are full
    if (words_and_segments.size(0) > 2) {
      mask = words_and_segments.select(0, 2).to(at::kBool).unsqueeze(1).unsqueeze(1);
    }
    for (const BertBlock& block : blocks) x = block(x, size, mask, dropout);
    return Linear(x, answers);
  };
}

}  // namespace sparfuse::workloads
