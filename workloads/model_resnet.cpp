// A small residual CNN for 28 x 28 images: a strided stem, three stages of pre-activation residual
// blocks, one linear layer over all positions.
//
// Source: K. He et al., "Identity Mappings in Deep Residual Networks", ECCV 2016.
// Deviations: group normalisation (Y. Wu and K. He, ECCV 2018), which keeps no running state that
// ranks would have to agree on; no mean over positions before the classifier, which on this few
// images takes several times as many steps to the same accuracy.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "workloads/models.hpp"

namespace sparfuse {
namespace {

constexpr std::array<std::int64_t, 3> kWidths{24, 64, 128};  // channels at 14, 7 and 4 pixels
constexpr int kBlocksPerStage = 2;
constexpr std::int64_t kLastPositions = 4 * 4;
constexpr std::int64_t kGroups = 8;

struct Norm {
  Norm(ParameterSet& parameters, const std::string& name, std::int64_t channels)
      : weight(parameters.Constant(name + ".weight", {channels}, 1.0)),
        bias(parameters.Constant(name + ".bias", {channels}, 0.0)) {}
  at::Tensor Relu(const at::Tensor& x) const {
    return at::relu(at::group_norm(x, kGroups, weight, bias));
  }
  at::Tensor weight;
  at::Tensor bias;
};

at::Tensor ConvolutionWeight(ParameterSet& parameters, const std::string& name, std::int64_t out,
                             std::int64_t in, std::int64_t kernel) {
  const double fan_in = static_cast<double>(in * kernel * kernel);
  return parameters.Normal(name + ".weight", {out, in, kernel, kernel}, std::sqrt(2.0 / fan_in));
}

struct Block {
  Block(ParameterSet& parameters, const std::string& name, std::int64_t in, std::int64_t out,
        std::int64_t stride_of_block)
      : stride(stride_of_block),
        norm1(parameters, name + ".norm1", in),
        conv1(ConvolutionWeight(parameters, name + ".conv1", out, in, 3)),
        norm2(parameters, name + ".norm2", out),
        conv2(ConvolutionWeight(parameters, name + ".conv2", out, out, 3)) {
    if (in != out) shortcut = ConvolutionWeight(parameters, name + ".shortcut", out, in, 1);
  }
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor a = norm1.Relu(x);
    const at::Tensor skip =
        shortcut.defined() ? at::conv2d(a, shortcut, {}, at::IntArrayRef(stride)) : x;
    const at::Tensor y = at::conv2d(a, conv1, {}, at::IntArrayRef(stride), at::IntArrayRef(1));
    return at::conv2d(norm2.Relu(y), conv2, {}, at::IntArrayRef(1), at::IntArrayRef(1)) + skip;
  }
  std::int64_t stride;
  Norm norm1;
  at::Tensor conv1;
  Norm norm2;
  at::Tensor conv2;
  at::Tensor shortcut;  // undefined where input and output have the same shape
};

}  // namespace

ForwardPass BuildResnet(ParameterSet& parameters, std::int64_t classes) {
  const at::Tensor stem = ConvolutionWeight(parameters, "stem", kWidths[0], 1, 3);
  std::vector<Block> blocks;
  std::int64_t channels = kWidths[0];
  for (std::size_t stage = 0; stage < kWidths.size(); ++stage) {
    for (int i = 0; i < kBlocksPerStage; ++i) {
      const std::string name =
          "stage" + std::to_string(stage + 1) + ".block" + std::to_string(i + 1);
      blocks.emplace_back(parameters, name, channels, kWidths[stage], stage > 0 && i == 0 ? 2 : 1);
      channels = kWidths[stage];
    }
  }
  const Norm norm(parameters, "norm", channels);
  const std::int64_t features = channels * kLastPositions;
  const at::Tensor weight = parameters.Normal("classifier.weight", {classes, features},
                                              1.0 / std::sqrt(static_cast<double>(features)));
  const at::Tensor bias = parameters.Constant("classifier.bias", {classes}, 0.0);
  return [=](const at::Tensor& images) {
    at::Tensor x = at::conv2d(images, stem, {}, at::IntArrayRef(2), at::IntArrayRef(1));
    for (const Block& block : blocks) x = block(x);
    return at::linear(norm.Relu(x).flatten(1), weight, bias);
  };
}

}  // namespace sparfuse
