// Updates one element as an optimizer does, and many parameters at once in a kernel. Host and
// device compute the same bits: neither contracts multiplications and additions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/device/kernel.hpp"

namespace sparfuse::workloads {

// Momentum, with weight decay added to the gradient.
struct SgdRule {
  float momentum = 0;
  float rate = 0;
  float decay = 0;

  SPARFUSE_HOST_DEVICE void operator()(float g, float& parameter, float* first, float*) const {
    *first = momentum * *first + (g + decay * parameter);
    parameter -= rate * *first;
  }
};

// The sign of the gradient, with decoupled weight decay. It has no state: the momentum that it
// belongs to is the method's.
struct SignRule {
  float rate = 0;
  float keep = 0;  // of a parameter, in spite of weight decay

  SPARFUSE_HOST_DEVICE void operator()(float g, float& parameter, float*, float*) const {
    const float sign = g > 0.0f ? 1.0f : g < 0.0f ? -1.0f : 0.0f;
    parameter = keep * parameter - rate * sign;
  }
};

// Adam with decoupled weight decay. `rate` and `root` include the corrections of the first steps,
// if there are any.
struct AdamRule {
  float beta1 = 0;
  float beta2 = 0;
  float rate = 0;
  float keep = 0;  // of a parameter, in spite of weight decay
  float root = 0;
  float epsilon = 0;

  SPARFUSE_HOST_DEVICE void operator()(float g, float& parameter, float* first,
                                       float* second) const {
    *first = beta1 * *first + (1.0f - beta1) * g;
    *second = beta2 * *second + (1.0f - beta2) * (g * g);
    parameter = keep * parameter - rate * *first / (sqrtf(*second) * root + epsilon);
  }
};

// Adam with weight decay added to the gradient, as torch.optim.Adam has it.
struct AdamL2Rule {
  AdamRule adam;  // keeps all
  float decay = 0;

  SPARFUSE_HOST_DEVICE void operator()(float g, float& parameter, float* first,
                                       float* second) const {
    adam(g + decay * parameter, parameter, first, second);
  }
};

template <class Rule>
struct OptimizerKernel {
  static constexpr const char* kName = "optimizer";
  static constexpr int kThreads = 256;
  static constexpr std::size_t kElements = 2048;  // of a block
  static constexpr int kParts = 96;               // parameters of a launch: its arguments fit 4 KB
  using Shared = gpu::NoShared;

  struct Part {
    const float* gradient = nullptr;
    std::size_t offset = 0;  // of the parameter's first element
    std::size_t size = 0;
    std::uint32_t first_block = 0;
    float factor = 1;
  };

  Rule rule;
  float* parameters = nullptr;  // all, and the state likewise
  float* first = nullptr;       // null for SignRule
  float* second = nullptr;      // and for SgdRule
  int parts_used = 0;
  Part parts[kParts];

  template <class Block>
  SPARFUSE_DEVICE void operator()(Block& block, Shared&) const {
    const std::uint32_t number = block.block();
    int p = 0;
    for (int above = parts_used; above - p > 1;) {  // parts[p] begins here or before, `above` after
      const int middle = (p + above) / 2;
      (parts[middle].first_block <= number ? p : above) = middle;
    }
    const Part& part = parts[p];
    const std::size_t begin = (number - part.first_block) * kElements;
    const std::size_t end = begin + kElements < part.size ? begin + kElements : part.size;
    for (std::size_t i = begin + block.thread(); i < end; i += kThreads) {
      const std::size_t at = part.offset + i;
      rule(part.factor * part.gradient[i], parameters[at], first == nullptr ? nullptr : first + at,
           second == nullptr ? nullptr : second + at);
    }
  }
};

}  // namespace sparfuse::workloads
