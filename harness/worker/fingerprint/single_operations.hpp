// Runs the operations of a fingerprint that need no other rank, on the host or on a card.
#pragma once

#include <memory>
#include <span>

#include "harness/worker/rank/rank.hpp"

namespace sparfuse::harness {

class SingleOperations {
 public:
  virtual ~SingleOperations() = default;

  // Each runs once more than is timed.
  // Bytes a second: a sum of squares (core/feedback/norm) over 128 MiB, on a card 256 MiB, which
  // is more than caches hold.
  virtual double ReadBytesPerSecond() = 0;
  // Operations a second of a product of square matrices in single precision: on the host ours, of
  // 384 x 384 (host_product.hpp); on a card cuBLAS's, of 4096 x 4096, without tensor cores.
  virtual double ProductOperationsPerSecond() = 0;
  // Seconds of top-k with error feedback at density 0.01: of 2^20 elements, on a card 2^24.
  virtual double TopKSeconds() = 0;
};

// Works on the rank's device with the rank's threads.
std::unique_ptr<SingleOperations> SingleOperationsOf(const Rank& rank);

}  // namespace sparfuse::harness
