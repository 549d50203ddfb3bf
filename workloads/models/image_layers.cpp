// Describes the families of models of images.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

// Describes the small residual CNN of digits-resnet: a strided stem, three stages of pre-activation
// residual blocks, one linear layer over all positions. image_forward.cpp names its source.
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

// Describes post-activation residual networks, built and named as in torchvision; for small images,
// with a stem of 3x3 kernels. Gradients come in the reverse order of torchvision's registration,
// but weight before bias within a norm and a convolution.
ModelDescription Describe(const ResnetSize& size) {
  ModelDescription model;
  std::int64_t side = size.strided_stem ? (size.data.image + 1) / 2 : size.data.image;
  const std::int64_t kernel = size.strided_stem ? 7 : 3;
  model.Convolution("conv1", size.width, size.data.channels, kernel, side * side);
  model.BatchNorm("bn1", size.width);
  if (size.strided_stem) side = (side + 1) / 2;
  std::int64_t in = size.width;
  std::int64_t width = size.width;
  for (std::size_t stage = 0; stage < size.blocks.size(); ++stage, width *= 2) {
    for (std::int64_t block = 0; block < size.blocks[stage]; ++block) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      const std::int64_t before = side * side;
      if (stage > 0 && block == 0) side = (side + 1) / 2;
      const std::int64_t after = side * side;
      const std::int64_t out = size.bottleneck ? 4 * width : width;
      if (size.bottleneck) {
        model.Convolution(name + "conv1", width, in, 1, before);
        model.BatchNorm(name + "bn1", width);
        model.Convolution(name + "conv2", width, width, 3, after);
        model.BatchNorm(name + "bn2", width);
        model.Convolution(name + "conv3", out, width, 1, after);
        model.BatchNorm(name + "bn3", out);
      } else {
        model.Convolution(name + "conv1", width, in, 3, after);
        model.BatchNorm(name + "bn1", width);
        model.Convolution(name + "conv2", width, width, 3, after);
        model.BatchNorm(name + "bn2", width);
      }
      // Without bottlenecks the shortcut of a wider block has no parameters (He et al., option A).
      if (size.bottleneck && block == 0) {
        model.Convolution(name + "downsample.0", out, in, 1, after);
        model.BatchNorm(name + "downsample.1", out);
      }
      in = out;
    }
  }
  model.Linear("fc", size.data.classes, in, 1, 1.0 / std::sqrt(3.0 * static_cast<double>(in)));
  return model;
}

// Describes VGG with batch normalisation, built and named as in torchvision. Gradients come in the
// reverse order of registration, but weight before bias within a convolution and a norm.
ModelDescription Describe(const VggSize& size) {
  constexpr std::int64_t kMostWidening = 8;
  ModelDescription model;
  int position = 0;  // index in torchvision's list of layers: convolution, norm, ReLU, ..., maximum
  std::int64_t in = size.data.channels;
  std::int64_t side = size.data.image;
  for (std::size_t stage = 0; stage < size.convolutions.size(); ++stage) {
    const std::int64_t out = size.width * std::min(std::int64_t{1} << stage, kMostWidening);
    for (std::int64_t i = 0; i < size.convolutions[stage]; ++i) {
      model.Convolution("features." + std::to_string(position), out, in, 3, side * side,
                        /*bias=*/true);
      model.BatchNorm("features." + std::to_string(position + 1), out);
      position += 3;
      in = out;
    }
    ++position;
    side /= 2;
  }
  const auto deviation = [](std::int64_t inputs) {
    return std::sqrt(2.0 / static_cast<double>(inputs));
  };
  model.Linear("classifier.0", size.hidden, in * side * side, 1, deviation(in * side * side));
  model.Linear("classifier.3", size.hidden, size.hidden, 1, deviation(size.hidden));
  model.Linear("classifier.6", size.data.classes, size.hidden, 1, deviation(size.hidden));
  return model;
}

// Describes vision transformers, named and divided as in Hugging Face's program, which the papers'
// scripts run: queries, keys and values are separate. Gradients come in the reverse order of that
// registration, but the projection of the patches comes last, and bias before weight in linear
// layers.
ModelDescription Describe(const VitSize& size) {
  const std::int64_t width = size.width;
  const std::int64_t along = size.data.image / size.patch;
  const std::int64_t patches = along * along;
  const std::int64_t tokens = patches + 1;
  const auto mixing = static_cast<double>(tokens * tokens * width);
  const std::string embeddings = "vit.embeddings.";
  ModelDescription model;
  model.Convolution(embeddings + "patch_embeddings.projection", width, size.data.channels,
                    size.patch, patches, /*bias=*/true);
  model.Operation(
      {{.name = embeddings + "cls_token", .shape = {1, 1, width}, .deviation = size.deviation}});
  model.Operation({{.name = embeddings + "position_embeddings",
                    .shape = {1, tokens, width},
                    .deviation = size.deviation}});
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = "vit.encoder.layer." + std::to_string(layer) + ".";
    const auto linear = [&](const char* part, std::int64_t out, std::int64_t in, double further) {
      model.Linear(name + part, out, in, tokens, size.deviation, further);
    };
    model.Norm(name + "layernorm_before", width);
    linear("attention.attention.query", width, width, mixing / 2);
    linear("attention.attention.key", width, width, mixing / 2);
    linear("attention.attention.value", width, width, mixing);
    linear("attention.output.dense", width, width, 0);
    model.Norm(name + "layernorm_after", width);
    linear("intermediate.dense", size.expanded, width, 0);
    linear("output.dense", width, size.expanded, 0);
  }
  model.Norm("vit.layernorm", width);
  model.Linear("classifier", size.data.classes, width, 1, size.deviation);
  return model;
}

}  // namespace sparfuse::workloads
