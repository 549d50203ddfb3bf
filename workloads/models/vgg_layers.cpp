// Describes VGG with batch normalisation, built and named as in torchvision. Gradients come in the
// reverse order of registration, but weight before bias within a convolution and a norm.
#include <algorithm>
#include <cmath>
#include <string>

#include "workloads/models/description.hpp"

namespace sparfuse::workloads {

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

}  // namespace sparfuse::workloads
