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

// An estimate: weights, gradients, momentum and residuals of 4 bytes an element each, and of each
// sample what kernels and matrices give, twice, for what follows a layer keeps as much. What
// frameworks and selections take besides is not in it.
CardMemory MemoryOf(const workloads::LayerTable& layers, double card_gbytes, int batch);

// A sentence for whoever asks about a batch that leaves most of the card empty; else "".
std::string NoteOn(const CardMemory& memory, int batch);

}  // namespace sparfuse::harness
