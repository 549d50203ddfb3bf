// Describes post-activation residual networks, built and named as in torchvision; for small images,
// with a stem of 3x3 kernels. Gradients come in the reverse order of torchvision's registration,
// but weight before bias within a norm and a convolution.
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

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

}  // namespace sparfuse::workloads
