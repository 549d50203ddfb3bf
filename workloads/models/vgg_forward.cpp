// Runs VGG forward: stages of 3x3 convolutions, each stage ending in a maximum over 2x2, and three
// linear layers.
//
// Source: K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
// Recognition", ICLR 2015, with the batch normalisation of torchvision's vgg16_bn.
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

struct VggConvolution {
  Affine kernel;
  BatchNorm norm;
  bool ends_stage;
};

}  // namespace

ForwardPass Build(const VggSize& size, const ParameterSet& parameters) {
  std::vector<VggConvolution> convolutions;
  int position = 0;
  for (const std::int64_t in_stage : size.convolutions) {
    for (std::int64_t i = 0; i < in_stage; ++i, position += 3) {
      convolutions.push_back({Affine(parameters, "features." + std::to_string(position)),
                              BatchNorm(parameters, "features." + std::to_string(position + 1)),
                              i + 1 == in_stage});
    }
    ++position;
  }
  const Affine first(parameters, "classifier.0"), second(parameters, "classifier.3"),
      last(parameters, "classifier.6");
  const double probability = size.dropout;
  return [=](const at::Tensor& images, Dropout& dropout) {
    at::Tensor x = images;
    for (const VggConvolution& convolution : convolutions) {
      x = at::conv2d(x, convolution.kernel.weight, convolution.kernel.bias, at::IntArrayRef(1),
                     at::IntArrayRef(1));
      x = at::relu(convolution.norm(x, dropout));
      if (convolution.ends_stage) x = at::max_pool2d(x, at::IntArrayRef(2));
    }
    x = dropout(at::relu(Linear(x.flatten(1), first)), probability);
    return Linear(dropout(at::relu(Linear(x, second)), probability), last);
  };
}

}  // namespace sparfuse::workloads
