// Runs a small residual CNN for 28 x 28 images forward: a strided stem, three stages of
// pre-activation residual blocks, one linear layer over all positions.
//
// Source: K. He et al., "Identity Mappings in Deep Residual Networks", ECCV 2016.
// Deviations: group normalisation (Y. Wu and K. He, ECCV 2018), because it keeps no running state
// that ranks would have to agree on; no mean over positions before the classifier, because with
// this few images it takes several times as many steps to the same accuracy.
#include <string>
#include <vector>

#include "workloads/models/forward_pass.hpp"
#include "workloads/torch/operators.hpp"

namespace sparfuse::workloads {
namespace {

constexpr int kStages = 3;
constexpr int kBlocksPerStage = 2;
constexpr std::int64_t kGroups = 8;

at::Tensor Relu(const at::Tensor& x, const Affine& norm) {
  return at::relu(at::group_norm(x, kGroups, norm.weight, norm.bias));
}

struct DigitsBlock {
  DigitsBlock(const ParameterSet& parameters, const std::string& name, std::int64_t stride_of_block)
      : stride(stride_of_block),
        norm1(parameters, name + ".norm1"),
        conv1(parameters[name + ".conv1.weight"]),
        norm2(parameters, name + ".norm2"),
        conv2(parameters[name + ".conv2.weight"]) {
    if (conv1.size(0) != conv1.size(1)) shortcut = parameters[name + ".shortcut.weight"];
  }
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor a = Relu(x, norm1);
    const at::Tensor skip =
        shortcut.defined() ? at::conv2d(a, shortcut, {}, at::IntArrayRef(stride)) : x;
    const at::Tensor y = at::conv2d(a, conv1, {}, at::IntArrayRef(stride), at::IntArrayRef(1));
    return at::conv2d(Relu(y, norm2), conv2, {}, at::IntArrayRef(1), at::IntArrayRef(1)) + skip;
  }
  std::int64_t stride;
  Affine norm1;
  at::Tensor conv1;
  Affine norm2;
  at::Tensor conv2;
  at::Tensor shortcut;  // undefined if input and output have the same shape
};

}  // namespace

ForwardPass Build(const DigitsResnetSize&, const ParameterSet& parameters) {
  const at::Tensor stem = parameters["stem.weight"];
  std::vector<DigitsBlock> blocks;
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = 0; i < kBlocksPerStage; ++i) {
      const std::string name =
          "stage" + std::to_string(stage + 1) + ".block" + std::to_string(i + 1);
      blocks.emplace_back(parameters, name, stage > 0 && i == 0 ? 2 : 1);
    }
  }
  const Affine norm(parameters, "norm");
  const Affine classifier(parameters, "classifier");
  return [=](const at::Tensor& images, Dropout&) {
    at::Tensor x = at::conv2d(images, stem, {}, at::IntArrayRef(2), at::IntArrayRef(1));
    for (const DigitsBlock& block : blocks) x = block(x);
    return Linear(Relu(x, norm).flatten(1), classifier);
  };
}

}  // namespace sparfuse::workloads
