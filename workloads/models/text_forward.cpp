// Runs the families of models of text and questions forward.
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
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

constexpr double kGptEpsilon = 1e-5;

struct GptBlock {
  Affine norm1, qkv, projection, norm2, expand, contract;
};

constexpr double kForgetBias = 1.0;  // remembers from the start (R. Jozefowicz et al., ICML 2015)

constexpr double kEpsilon = 1e-5;

struct Layer {
  Layer(const ParameterSet& parameters, const std::string& name)
      : output(parameters, name + "self_attn.out_proj"),
        norm1(parameters, name + "norm1"),
        expand(parameters, name + "linear1"),
        contract(parameters, name + "linear2"),
        norm2(parameters, name + "norm2") {
    input.weight = parameters[name + "self_attn.in_proj_weight"];
    input.bias = parameters[name + "self_attn.in_proj_bias"];
  }
  at::Tensor operator()(const at::Tensor& x, const TransformerSize& size, Dropout& dropout) const {
    const double probability = size.dropout;
    const at::Tensor mixed = Linear(
        AttendBackwards(Linear(x, input), size.heads, size.attention_dropout, dropout), output);
    const at::Tensor y = LayerNorm(x + dropout(mixed, probability), norm1, kEpsilon);
    const at::Tensor wide = dropout(at::relu(Linear(y, expand)), probability);
    return LayerNorm(y + dropout(Linear(wide, contract), probability), norm2, kEpsilon);
  }
  Affine input, output, norm1, expand, contract, norm2;
};

// [window, width]: alternating sines and cosines, with wavelengths from 2 pi to 20,000 pi.
at::Tensor Waves(std::int64_t window, std::int64_t width) {
  at::Tensor waves = at::empty({window, width}, at::kFloat);
  float* out = waves.mutable_data_ptr<float>();
  for (std::int64_t position = 0; position < window; ++position) {
    for (std::int64_t i = 0; i < width; ++i) {
      const double exponent = static_cast<double>(i - i % 2) / static_cast<double>(width);
      const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
      *out++ = static_cast<float>(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return waves;
}

}  // namespace

// Runs BERT: embeddings of words, positions and segments, post-norm encoder blocks, and a linear
// layer that scores each word as first and as last word of the answer. The pooler takes no part.
//
// Source: J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019.
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

// Runs decoder-only transformers forward: token and position embeddings, pre-norm blocks of causal
// attention and a GELU network, a last norm, and logits by the transposed token embedding (tied).
//
// Source: A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
ForwardPass Build(const GptSize& size, const ParameterSet& parameters) {
  const at::Tensor embedding = parameters["wte.weight"];
  const at::Tensor positions = parameters["wpe.weight"];
  std::vector<GptBlock> blocks;
  for (std::int64_t i = 0; i < size.layers; ++i) {
    const std::string name = "h." + std::to_string(i) + ".";
    GptBlock block;
    block.norm1 = Affine(parameters, name + "ln_1");
    block.qkv = Affine(parameters, name + "attn.c_attn");
    block.projection = Affine(parameters, name + "attn.c_proj");
    block.norm2 = Affine(parameters, name + "ln_2");
    block.expand = Affine(parameters, name + "mlp.c_fc");
    block.contract = Affine(parameters, name + "mlp.c_proj");
    blocks.push_back(std::move(block));
  }
  const Affine norm(parameters, "ln_f");
  const bool rows_are_outputs = size.rows_are_outputs;
  const auto linear = [rows_are_outputs](const at::Tensor& x, const Affine& affine) {
    if (rows_are_outputs) return Linear(x, affine);
    return at::addmm(affine.bias, x.flatten(0, 1), affine.weight)
        .view({x.size(0), x.size(1), affine.weight.size(1)});
  };
  const std::int64_t heads = size.heads;
  const double probability = size.dropout, of_attention = size.attention_dropout;
  return [=](const at::Tensor& tokens, Dropout& dropout) {
    const at::Tensor of_positions = positions.narrow(0, 0, tokens.size(1));
    const at::Tensor of_tokens = at::embedding(embedding, tokens);
    at::Tensor x = dropout(of_tokens + of_positions, probability);
    for (const GptBlock& block : blocks) {
      const at::Tensor qkv = linear(LayerNorm(x, block.norm1, kGptEpsilon), block.qkv);
      const at::Tensor mixed = AttendBackwards(qkv, heads, of_attention, dropout);
      x = x + dropout(linear(mixed, block.projection), probability);
      const at::Tensor wide =
          at::gelu(linear(LayerNorm(x, block.norm2, kGptEpsilon), block.expand), "tanh");
      x = x + dropout(linear(wide, block.contract), probability);
    }
    return at::linear(LayerNorm(x, norm, kGptEpsilon), embedding);
  };
}

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

// Runs neural n-gram models forward: the embeddings of the last n-grams side by side, a hidden
// layer, and logits.
//
// Source: Y. Bengio et al., "A Neural Probabilistic Language Model", JMLR 3, 2003.
// Deviations: its words are n-grams of characters, and each n-gram has its own row; ReLU replaces
// tanh, and no connection leads from the embeddings past the hidden layer. The positions before a
// window hold the first character of the vocabulary.
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

// Runs word-level transformer language models forward: a scaled embedding with sines for positions,
// post-norm encoder layers with a causal mask, and a separate decoder.
//
// Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, in the form of PyTorch's
// example of a word-level language model.
ForwardPass Build(const TransformerSize& size, const ParameterSet& parameters) {
  const at::Tensor embedding = parameters["encoder.weight"];
  const at::Tensor waves = Waves(size.window, size.width).to(embedding.device());
  std::vector<Layer> layers;
  for (std::int64_t i = 0; i < size.layers; ++i) {
    layers.emplace_back(parameters, "transformer_encoder.layers." + std::to_string(i) + ".");
  }
  const Affine decoder(parameters, "decoder");
  const double scale = std::sqrt(static_cast<double>(size.width));
  const double probability = size.dropout;
  return [=](const at::Tensor& tokens, Dropout& dropout) {
    at::Tensor x = dropout(
        at::embedding(embedding, tokens) * scale + waves.narrow(0, 0, tokens.size(1)), probability);
    for (const Layer& layer : layers) x = layer(x, size, dropout);
    return Linear(x, decoder);
  };
}

}  // namespace sparfuse::workloads
