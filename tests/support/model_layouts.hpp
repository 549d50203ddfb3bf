// Lays out the models that the papers train. Each layout lists every parameter with its shape, last
// parameter first, as the authors' planners see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/fusion/layout.hpp"

namespace sparfuse::testing {

// The parameters in the order of a model's declaration; its layout is the reverse.
class ModelParameters {
 public:
  void Add(std::string name, std::vector<std::int64_t> shape) {
    parameters_.emplace_back(std::move(name), std::move(shape));
  }
  // A linear layer or a normalisation: the weight, then a bias as long as its first dimension.
  void AddWithBias(const std::string& name, std::vector<std::int64_t> shape) {
    const std::int64_t outputs = shape.front();
    Add(name + ".weight", std::move(shape));
    Add(name + ".bias", {outputs});
  }
  GradientLayout InReadyOrder() const {
    GradientLayout layout;
    for (auto it = parameters_.rbegin(); it != parameters_.rend(); ++it) {
      std::size_t numel = 1;
      for (const std::int64_t extent : it->second) numel *= static_cast<std::size_t>(extent);
      layout.Add(it->first, it->second, numel);
    }
    return layout;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> parameters_;
};

// ResNet with bottleneck blocks: `blocks` gives the number for each of its four stages, `stem` the
// width of its first kernel.
inline GradientLayout BottleneckResNet(const std::vector<int>& blocks, std::int64_t stem,
                                       std::int64_t classes) {
  ModelParameters model;
  model.Add("conv1.weight", {64, 3, stem, stem});
  model.AddWithBias("bn1", {64});
  std::int64_t in = 64;
  std::int64_t width = 64;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
    for (int block = 0; block < blocks[stage]; ++block) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      model.Add(name + "conv1.weight", {width, in, 1, 1});
      model.AddWithBias(name + "bn1", {width});
      model.Add(name + "conv2.weight", {width, width, 3, 3});
      model.AddWithBias(name + "bn2", {width});
      model.Add(name + "conv3.weight", {4 * width, width, 1, 1});
      model.AddWithBias(name + "bn3", {4 * width});
      if (block == 0) {
        model.Add(name + "downsample.0.weight", {4 * width, in, 1, 1});
        model.AddWithBias(name + "downsample.1", {4 * width});
      }
      in = 4 * width;
    }
  }
  model.AddWithBias("fc", {classes, in});
  return model.InReadyOrder();
}

inline GradientLayout ResNet50Cifar() { return BottleneckResNet({3, 4, 6, 3}, 3, 100); }
inline GradientLayout ResNet101Cifar() { return BottleneckResNet({3, 4, 23, 3}, 3, 100); }
inline GradientLayout ResNet152Cifar() { return BottleneckResNet({3, 8, 36, 3}, 3, 100); }
inline GradientLayout ResNet50ImageNet() { return BottleneckResNet({3, 4, 6, 3}, 7, 1000); }
inline GradientLayout ResNet101ImageNet() { return BottleneckResNet({3, 4, 23, 3}, 7, 1000); }
inline GradientLayout ResNet152ImageNet() { return BottleneckResNet({3, 8, 36, 3}, 7, 1000); }

// VGG with batch normalisation for 32 x 32 images of 100 classes; `convolutions` gives the number
// for each of its five stages.
inline GradientLayout VggCifar(const std::vector<int>& convolutions) {
  ModelParameters model;
  const std::vector<std::int64_t> widths = {64, 128, 256, 512, 512};
  std::int64_t in = 3;
  for (std::size_t stage = 0; stage < widths.size(); ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) {
      const std::string name = "features." + std::to_string(stage) + "." + std::to_string(i);
      model.AddWithBias(name + ".conv", {widths[stage], in, 3, 3});
      model.AddWithBias(name + ".bn", {widths[stage]});
      in = widths[stage];
    }
  }
  model.AddWithBias("classifier.0", {4096, 512});
  model.AddWithBias("classifier.3", {4096, 4096});
  model.AddWithBias("classifier.6", {100, 4096});
  return model.InReadyOrder();
}

inline GradientLayout Vgg16Cifar() { return VggCifar({2, 2, 3, 3, 3}); }
inline GradientLayout Vgg19Cifar() { return VggCifar({2, 2, 4, 4, 4}); }

inline constexpr std::int64_t kWikiText2Words = 33278;

inline GradientLayout LstmWikiText2() {
  ModelParameters model;
  model.Add("encoder.weight", {kWikiText2Words, 500});
  for (const char* layer : {"l0", "l1"}) {
    model.Add(std::string("rnn.weight_ih_") + layer, {2000, 500});
    model.Add(std::string("rnn.weight_hh_") + layer, {2000, 500});
    model.Add(std::string("rnn.bias_ih_") + layer, {2000});
    model.Add(std::string("rnn.bias_hh_") + layer, {2000});
  }
  model.AddWithBias("decoder", {kWikiText2Words, 500});
  return model.InReadyOrder();
}

inline GradientLayout TransformerWikiText2() {
  ModelParameters model;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "layers." + std::to_string(i) + ".";
    model.AddWithBias(name + "self_attn.in_proj", {1200, 400});
    model.AddWithBias(name + "self_attn.out_proj", {400, 400});
    model.AddWithBias(name + "linear1", {400, 400});
    model.AddWithBias(name + "linear2", {400, 400});
    model.AddWithBias(name + "norm1", {400});
    model.AddWithBias(name + "norm2", {400});
  }
  model.Add("encoder.weight", {kWikiText2Words, 400});
  model.AddWithBias("decoder", {kWikiText2Words, 400});
  return model.InReadyOrder();
}

// BERT-base with the question-answering head. Its pooler never gets a gradient.
inline GradientLayout BertBase(bool with_pooler) {
  ModelParameters model;
  model.Add("embeddings.word_embeddings.weight", {30528, 768});
  model.Add("embeddings.position_embeddings.weight", {512, 768});
  model.Add("embeddings.token_type_embeddings.weight", {2, 768});
  model.AddWithBias("embeddings.LayerNorm", {768});
  for (int i = 0; i < 12; ++i) {
    const std::string name = "encoder.layer." + std::to_string(i) + ".";
    for (const char* part : {"query", "key", "value"}) {
      model.AddWithBias(name + "attention.self." + part, {768, 768});
    }
    model.AddWithBias(name + "attention.output.dense", {768, 768});
    model.AddWithBias(name + "attention.output.LayerNorm", {768});
    model.AddWithBias(name + "intermediate.dense", {3072, 768});
    model.AddWithBias(name + "output.dense", {768, 3072});
    model.AddWithBias(name + "output.LayerNorm", {768});
  }
  if (with_pooler) model.AddWithBias("pooler.dense", {768, 768});
  model.AddWithBias("qa_outputs", {2, 768});
  return model.InReadyOrder();
}

}  // namespace sparfuse::testing
