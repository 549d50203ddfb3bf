#include "harness/advise/card_memory.hpp"

#include <fmt/format.h>

namespace sparfuse::harness {
namespace {

constexpr double kBytesAnElement = 4 * sizeof(float);
constexpr double kBytesAnOutput = 2 * sizeof(float);
constexpr double kMostlyEmpty = 0.25;  // a card with less in use is mostly empty
constexpr double kHalfFull = 0.5;
constexpr int kMostBatch = 1 << 20;

// The output elements of kernels and matrices for one sample. Each output element takes as many
// multiply-accumulates as a row of the weight has elements.
double OutputsOf(const workloads::LayerTable& layers) {
  double outputs = 0;
  for (const workloads::LayerTensor& tensor : layers.tensors) {
    if (tensor.macs <= 0 || tensor.shape.empty() || tensor.numel == 0) continue;
    outputs +=
        tensor.macs * static_cast<double>(tensor.shape.front()) / static_cast<double>(tensor.numel);
  }
  return outputs;
}

}  // namespace

bool CardMemory::mostly_empty() const {
  return card_gbytes > 0 && filled_gbytes < kMostlyEmpty * card_gbytes && larger_batch > 0;
}

CardMemory MemoryOf(const workloads::LayerTable& layers, double card_gbytes, int batch) {
  const double outputs = OutputsOf(layers);
  const double fixed = 1e-9 * kBytesAnElement * static_cast<double>(layers.numel());
  const auto filled = [&](int samples) {
    return fixed + 1e-9 * kBytesAnOutput * samples * outputs;
  };
  CardMemory memory{card_gbytes, filled(batch)};
  if (outputs <= 0) return memory;
  for (int larger = 1; larger <= kMostBatch && filled(larger) <= kHalfFull * card_gbytes;
       larger *= 2) {
    if (larger > batch) memory.larger_batch = larger;
  }
  return memory;
}

std::string NoteOn(const CardMemory& memory, int batch) {
  if (!memory.mostly_empty()) return "";
  return fmt::format(
      "batch {} fills about {:.2g} of the card's {:g} GB (an estimate: weights, gradients, "
      "momentum, residuals and outputs of layers); a larger batch computes longer for the same "
      "exchange, and methods gain less: `--batch {}` would fill at most half",
      batch, memory.filled_gbytes, memory.card_gbytes, memory.larger_batch);
}

}  // namespace sparfuse::harness
