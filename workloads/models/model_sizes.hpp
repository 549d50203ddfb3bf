// Declares the sizes in which each family of models is built, here and at the papers' scale. No
// LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace sparfuse::workloads {

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
struct DigitsResnetSize {};

struct ResnetSize {
  ImageSize data;
  std::vector<std::int64_t> blocks;  // in each stage; stages double the width and halve the image
  bool bottleneck = true;            // of 1x1, 3x3, 1x1 kernels, four times as wide outside
  std::int64_t width = 64;           // of the first stage
  bool strided_stem = false;         // 7x7 with stride 2 and a maximum over 3x3, for large images
};

struct VggSize {
  ImageSize data;
  std::vector<std::int64_t> convolutions;  // in each stage; each stage ends by halving the image
  std::int64_t width = 64;                 // of the first stage; doubles up to eight times
  std::int64_t hidden = 4096;              // of the two layers before the last
  double dropout = 0.5;                    // in front of the last two layers
};

struct VitSize {
  ImageSize data;
  std::int64_t patch = 16;  // pixels along each side
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t expanded = 0;  // width between the two layers of a block's network
  double deviation = 0.02;    // of initial weights
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
  double deviation = 0.02;
};

struct GptSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t width = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  double dropout = 0.1;
  double deviation = 0.02;
  bool rows_are_outputs = false;  // of linear weights: [out, in]; OpenAI's are [in, out]
};

struct LstmSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t embedding = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 2;
  double dropout = 0.5;
};

struct TransformerSize {
  std::int64_t vocabulary = 0;
  std::int64_t window = 0;
  std::int64_t width = 400;
  std::int64_t expanded = 400;
  std::int64_t layers = 8;
  std::int64_t heads = 10;
  double dropout = 0.5;
};

using ModelSize = std::variant<DigitsResnetSize, ResnetSize, VggSize, VitSize, BertSize, GptSize,
                               LstmSize, TransformerSize>;

// "resnet", "vgg", "vit", "bert", "gpt", "lstm" or "transformer".
std::string_view FamilyOf(const ModelSize& size);

}  // namespace sparfuse::workloads
