// Runs residual networks forward, with the activation after the addition. A block has two
// convolutions or a bottleneck of three.
//
// Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; with
// bottlenecks, the stride is in the 3x3 convolution, as in torchvision.
#include <array>
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

struct Convolution {  // with its norm
  Convolution(const ParameterSet& parameters, const std::string& convolution,
              const std::string& norm_name, std::int64_t stride_of_convolution = 1)
      : weight(parameters[convolution + ".weight"]),
        norm(parameters, norm_name),
        stride(stride_of_convolution) {}
  at::Tensor operator()(const at::Tensor& x, const Dropout& dropout) const {
    const std::int64_t padding = weight.size(2) / 2;
    return norm(at::conv2d(x, weight, {}, at::IntArrayRef(stride), at::IntArrayRef(padding)),
                dropout);
  }
  at::Tensor weight;
  BatchNorm norm;
  std::int64_t stride;
};

struct Block {
  at::Tensor operator()(const at::Tensor& x, const Dropout& dropout) const {
    at::Tensor y = x;
    for (std::size_t i = 0; i < path.size(); ++i) {
      y = path[i](y, dropout);
      if (i + 1 < path.size()) y = at::relu(y);
    }
    return at::relu(y + Around(x, y, dropout));
  }
  at::Tensor Around(const at::Tensor& x, const at::Tensor& y, const Dropout& dropout) const {
    if (!projection.empty()) return projection.front()(x, dropout);
    const std::int64_t more = y.size(1) - x.size(1);
    if (more == 0) return x;
    // He et al., option A: take every other position, and pad the further channels with zeros.
    const at::Tensor fewer = x.slice(2, 0, x.size(2), 2).slice(3, 0, x.size(3), 2);
    return at::constant_pad_nd(fewer, std::array<std::int64_t, 6>{0, 0, 0, 0, more / 2, more / 2});
  }
  std::vector<Convolution> path;
  std::vector<Convolution> projection;  // one or none
};

}  // namespace

ForwardPass Build(const ResnetSize& size, const ParameterSet& parameters) {
  const Convolution stem(parameters, "conv1", "bn1", size.strided_stem ? 2 : 1);
  std::vector<Block> blocks;
  for (std::size_t stage = 0; stage < size.blocks.size(); ++stage) {
    for (std::int64_t i = 0; i < size.blocks[stage]; ++i) {
      const std::string name = "layer" + std::to_string(stage + 1) + "." + std::to_string(i) + ".";
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      Block block;
      const int convolutions = size.bottleneck ? 3 : 2;
      const int strided = size.bottleneck ? 2 : 1;
      for (int c = 1; c <= convolutions; ++c) {
        block.path.emplace_back(parameters, name + "conv" + std::to_string(c),
                                name + "bn" + std::to_string(c), c == strided ? stride : 1);
      }
      if (size.bottleneck && i == 0) {
        block.projection.emplace_back(parameters, name + "downsample.0", name + "downsample.1",
                                      stride);
      }
      blocks.push_back(std::move(block));
    }
  }
  const Affine classifier(parameters, "fc");
  const bool strided_stem = size.strided_stem;
  return [=](const at::Tensor& images, const Dropout& dropout) {
    at::Tensor x = at::relu(stem(images, dropout));
    if (strided_stem) {
      x = at::max_pool2d(x, at::IntArrayRef(3), at::IntArrayRef(2), at::IntArrayRef(1));
    }
    for (const Block& block : blocks) x = block(x, dropout);
    return Linear(x.mean(at::IntArrayRef({2, 3})), classifier);
  };
}

}  // namespace sparfuse::workloads
