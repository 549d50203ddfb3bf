// Declares the sizes in which each family of models is built, here and at the papers' scale. It
// does not need LibTorch.
//
// A family is a struct of this file, listed in ModelSize, with its name and two functions.
// Describe, in image_layers.cpp or text_layers.cpp, declares its parameters (description.hpp).
// Build, in image_forward.cpp or text_forward.cpp, makes its forward pass over them
// (forward_pass.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace sparfuse::workloads {

class ForwardPass;
class ModelDescription;
class ParameterSet;
struct PreparedMeta;

inline constexpr std::size_t kTextWindow = 64;       // tokens that a sample of the real text has
inline constexpr std::int64_t kTextCharacters = 63;  // that the King James text is written with
inline constexpr std::int64_t kDigitPixels = 28;     // along each side of an image of a digit
inline constexpr std::int64_t kDigitClasses = 10;

// Images are square: `image` pixels along each side, of `channels` colours.
struct ImageSize {
  std::int64_t image = 0;
  std::int64_t channels = 3;
  std::int64_t classes = 0;
};

// The pre-activation network of the workload digits-resnet, which has one size.
struct DigitsResnetSize {
  static constexpr std::string_view kFamily = "resnet";
  friend ModelDescription Describe(const DigitsResnetSize& size);
  friend ForwardPass Build(const DigitsResnetSize& size, const ParameterSet& parameters);
};

struct ResnetSize {
  ImageSize data;
  std::vector<std::int64_t> blocks;  // in each stage; stages double the width and halve the image
  bool bottleneck = true;            // of 1x1, 3x3, 1x1 kernels, four times as wide outside
  std::int64_t width = 64;           // of the first stage
  bool strided_stem = false;         // 7x7 with stride 2 and a maximum over 3x3, for large images

  static constexpr std::string_view kFamily = "resnet";
  friend ModelDescription Describe(const ResnetSize& size);
  friend ForwardPass Build(const ResnetSize& size, const ParameterSet& parameters);
};

struct VggSize {
  ImageSize data;
  std::vector<std::int64_t> convolutions;  // in each stage; each stage ends by halving the image
  std::int64_t width = 64;                 // of the first stage; doubles up to eight times
  std::int64_t hidden = 4096;              // of the two layers before the last
  double dropout = 0.5;                    // in front of the last two layers

  static constexpr std::string_view kFamily = "vgg";
  friend ModelDescription Describe(const VggSize& size);
  friend ForwardPass Build(const VggSize& size, const ParameterSet& parameters);
};

struct VitSize {
  ImageSize data;
  std::int64_t patch = 16;  // pixels along each side
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t expanded = 0;  // width between the two layers of a block's network
  double deviation = 0.02;    // of initial weights

  static constexpr std::string_view kFamily = "vit";
  friend ModelDescription Describe(const VitSize& size);
  friend ForwardPass Build(const VitSize& size, const ParameterSet& parameters);
};

struct BertSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;     // tokens of a sample
  std::int64_t positions = 0;  // that can be told apart
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t expanded = 0;
  double dropout = 0.1;
  double attention_dropout = 0;  // of attention's weights
  double deviation = 0.02;

  static constexpr std::string_view kFamily = "bert";
  friend ModelDescription Describe(const BertSize& size);
  friend ForwardPass Build(const BertSize& size, const ParameterSet& parameters);
};

struct GptSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  double dropout = 0.1;
  double attention_dropout = 0;  // of attention's weights
  double deviation = 0.02;
  bool rows_are_outputs = false;  // of linear weights: [out, in]; OpenAI's are [in, out]

  static constexpr std::string_view kFamily = "gpt";
  friend ModelDescription Describe(const GptSize& size);
  friend ForwardPass Build(const GptSize& size, const ParameterSet& parameters);
};

struct LstmSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t embedding = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 2;
  double dropout = 0.5;
  bool tied = false;  // the decoder's weight is the embedding's; embedding = hidden

  static constexpr std::string_view kFamily = "lstm";
  friend ModelDescription Describe(const LstmSize& size);
  friend ForwardPass Build(const LstmSize& size, const ParameterSet& parameters);
};

// Looks up whole n-grams of characters. Most of them never occur, so that the embedding's gradient
// is sparse by nature.
struct NgramSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t order = 3;     // characters of an n-gram; the embedding has vocabulary^order rows
  std::int64_t contexts = 2;  // n-grams before the character that is predicted, end to end
  std::int64_t width = 16;    // of a row
  std::int64_t hidden = 64;

  static constexpr std::string_view kFamily = "ngram";
  friend ModelDescription Describe(const NgramSize& size);
  friend ForwardPass Build(const NgramSize& size, const ParameterSet& parameters);
};

struct TransformerSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t width = 400;
  std::int64_t expanded = 400;
  std::int64_t layers = 8;
  std::int64_t heads = 10;
  double dropout = 0.5;
  double attention_dropout = 0;  // of attention's weights

  static constexpr std::string_view kFamily = "transformer";
  friend ModelDescription Describe(const TransformerSize& size);
  friend ForwardPass Build(const TransformerSize& size, const ParameterSet& parameters);
};

using ModelSize = std::variant<DigitsResnetSize, ResnetSize, VggSize, VitSize, BertSize, GptSize,
                               LstmSize, NgramSize, TransformerSize>;

inline std::string_view FamilyOf(const ModelSize& size) {
  return std::visit([](const auto& family) { return family.kFamily; }, size);
}

// The model with the number of classes, or the size of the vocabulary, of the data.
ModelSize ModelForData(ModelSize size, const PreparedMeta& data);

}  // namespace sparfuse::workloads
