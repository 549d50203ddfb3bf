// Runs the families of models of images forward.
#include <array>
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

struct VggConvolution {
  Affine kernel;
  BatchNorm norm;
  bool ends_stage;
};

constexpr double kVitEpsilon = 1e-12;  // as in Hugging Face's norms

struct VitBlock {
  VitBlock(const ParameterSet& parameters, const std::string& name)
      : norm1(parameters, name + "layernorm_before"),
        query(parameters, name + "attention.attention.query"),
        key(parameters, name + "attention.attention.key"),
        value(parameters, name + "attention.attention.value"),
        output(parameters, name + "attention.output.dense"),
        norm2(parameters, name + "layernorm_after"),
        expand(parameters, name + "intermediate.dense"),
        contract(parameters, name + "output.dense") {}
  at::Tensor operator()(const at::Tensor& x, std::int64_t heads, Dropout& dropout) const {
    const at::Tensor a = LayerNorm(x, norm1, kVitEpsilon);
    const at::Tensor queries = Linear(a, query);
    const at::Tensor keys = Linear(a, key);
    const at::Tensor values = Linear(a, value);
    const at::Tensor y =
        x + Linear(Attend(queries, keys, values, {.heads = heads}, dropout), output);
    return y + Linear(at::gelu(Linear(LayerNorm(y, norm2, kVitEpsilon), expand)), contract);
  }
  Affine norm1, query, key, value, output, norm2, expand, contract;
};

}  // namespace

// Runs a small residual CNN for 28 x 28 images forward: a strided stem, three stages of
// pre-activation residual blocks, one linear layer over all positions.
//
// Source: K. He et al., "Identity Mappings in Deep Residual Networks", ECCV 2016.
// Deviations: group normalisation (Y. Wu and K. He, ECCV 2018), because it keeps no running state
// that ranks would have to agree on; no mean over positions before the classifier, because with
// this few images it takes several times as many steps to the same accuracy.
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

// Runs residual networks forward, with the activation after the addition. A block has two
// convolutions or a bottleneck of three.
//
// Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; with
// bottlenecks, the stride is in the 3x3 convolution, as in torchvision.
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

// Runs VGG forward: stages of 3x3 convolutions, each stage ending in a maximum over 2x2, and three
// linear layers.
//
// Source: K. Simonyan and A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
// Recognition", ICLR 2015, with the batch normalisation of torchvision's vgg16_bn.
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

// Runs vision transformers forward: an image as a row of patches behind a token for its class,
// pre-norm encoder blocks, and a linear layer over the class token.
//
// Source: A. Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021.
ForwardPass Build(const VitSize& size, const ParameterSet& parameters) {
  const Affine patches(parameters, "vit.embeddings.patch_embeddings.projection");
  const at::Tensor class_token = parameters["vit.embeddings.cls_token"];
  const at::Tensor positions = parameters["vit.embeddings.position_embeddings"];
  std::vector<VitBlock> blocks;
  for (std::int64_t layer = 0; layer < size.layers; ++layer) {
    blocks.emplace_back(parameters, "vit.encoder.layer." + std::to_string(layer) + ".");
  }
  const Affine norm(parameters, "vit.layernorm");
  const Affine classifier(parameters, "classifier");
  const std::int64_t patch = size.patch, heads = size.heads;
  return [=](const at::Tensor& images, Dropout& dropout) {
    const at::Tensor row = at::conv2d(images, patches.weight, patches.bias, at::IntArrayRef(patch))
                               .flatten(2)
                               .transpose(1, 2);
    at::Tensor x = at::cat({class_token.expand({images.size(0), -1, -1}), row}, 1) + positions;
    for (const VitBlock& block : blocks) x = block(x, heads, dropout);
    return Linear(LayerNorm(x, norm, kVitEpsilon).select(1, 0), classifier);
  };
}

}  // namespace sparfuse::workloads
