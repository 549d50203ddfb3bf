// Describes the small residual CNN of digits-resnet: a strided stem, three stages of pre-activation
// residual blocks, one linear layer over all positions. digits_resnet_forward.cpp names its source.
#include <array>
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

ModelDescription Describe(const DigitsResnetSize&) {
  constexpr std::array<std::int64_t, 3> kWidths{24, 64, 128};
  constexpr std::array<std::int64_t, 3> kSides{14, 7, 4};  // pixels
  constexpr int kBlocksPerStage = 2;
  ModelDescription model;
  model.Convolution("stem", kWidths[0], 1, 3, kSides[0] * kSides[0]);
  std::int64_t in = kWidths[0];
  for (std::size_t stage = 0; stage < kWidths.size(); ++stage) {
    const std::int64_t out = kWidths[stage];
    const std::int64_t positions = kSides[stage] * kSides[stage];
    for (int i = 0; i < kBlocksPerStage; ++i) {
      const std::string name =
          "stage" + std::to_string(stage + 1) + ".block" + std::to_string(i + 1) + ".";
      model.Norm(name + "norm1", in);
      const std::size_t first = model.Convolution(name + "conv1", out, in, 3, positions);
      model.Norm(name + "norm2", out);
      model.Convolution(name + "conv2", out, out, 3, positions);
      if (in != out) {
        model.Convolution(name + "shortcut", out, in, 1, positions);
        model.MoveLastBefore(first);
      }
      in = out;
    }
  }
  model.Norm("norm", in);
  const std::int64_t features = in * kSides.back() * kSides.back();
  model.Linear("classifier", kDigitClasses, features, 1,
               1.0 / std::sqrt(static_cast<double>(features)));
  return model;
}

}  // namespace sparfuse::workloads
