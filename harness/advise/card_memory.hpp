// How much of a card's memory a step fills, as far as a model's table tells.
#pragma once

#include <string>

#include "harness/records/cell_config.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {

struct CardMemory {
  double card_gbytes = 0;    // of the card, 10^9 bytes
  double filled_gbytes = 0;  // of it by a step of this batch
  int larger_batch = 0;  // a power of two that fills at most half of the card; 0: none is larger

  bool mostly_empty() const;
};

// An estimate. It counts weights, gradients, momentum and residuals at 4 bytes an element each. For
// each sample it counts the results of kernels and matrices twice, because the operations that
// follow a layer keep as much again. It leaves out the memory of frameworks and selections.
CardMemory MemoryOf(const workloads::LayerTable& layers, double card_gbytes, int batch);

// A sentence for a user whose batch leaves most of the card empty; else "".
std::string NoteOn(const CardMemory& memory, int batch);

}  // namespace sparfuse::harness
