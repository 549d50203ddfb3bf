// What the parameters of models are called that go by two sets of names.
#pragma once

#include <cstdint>
#include <string>

#include "workloads/models/model_sizes.hpp"

namespace sparfuse::workloads {

struct GptParts {
  std::string embedding, position;  // whole names
  std::string block;                // followed by the block's number and a dot
  std::int64_t first_block;
  std::string norm1, qkv, projection, norm2, expand, contract;  // within a block
  std::string norm;
};

GptParts PartsOf(GptNames names);

// Whole names; of layer `layer`, 0-based.
struct LstmParts {
  std::string embedding, input_weight, hidden_weight, input_bias, hidden_bias;
};

LstmParts PartsOf(LstmNames names, std::int64_t layer);

}  // namespace sparfuse::workloads
