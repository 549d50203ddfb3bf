// Maps weights by the names that published files give them to a model's parameters. No LibTorch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/models/model_sizes.hpp"
#include "workloads/weights/safetensors.hpp"

namespace sparfuse::workloads {

struct WeightMap {
  struct Filled {
    std::string parameter;
    std::size_t tensor = 0;  // of the file
    bool statistic = false;  // a running mean or variance, "NORM.running_mean"
    bool padded = false;     // with rows of zeros
    bool transposed = false;
  };
  struct Skipped {
    std::string tensor, why;
  };
  std::vector<Filled> filled;
  std::vector<Skipped> skipped;
  std::vector<std::string> fresh;    // parameters of heads, drawn from the seed
  std::vector<std::string> missing;  // other parameters that no tensor fills
  std::vector<std::string> unknown;  // tensors that fill nothing, and are no known buffers
  std::vector<std::string> unfit;    // "NAME [2, 3], expected [3, 2]"

  // Throws Error{kData} naming missing, unknown and unfit tensors; the file begins the message.
  void Require(std::string_view file) const;
};

// Every parameter is filled exactly once, or named. Tensors have the names of Hugging Face (BERT,
// GPT-2, ViT), NVIDIA's BERT, torchvision (ResNet, VGG) and PyTorch's word-level models.
WeightMap MapWeights(const ModelSize& size, const std::vector<StoredTensor>& tensors);

}  // namespace sparfuse::workloads
