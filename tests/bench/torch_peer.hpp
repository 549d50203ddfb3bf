// Runs LibTorch's own selection, the one available to users today, for benchmarks. Needs LibTorch.
#pragma once

#include <cstddef>
#include <functional>

#include "core/device/device.hpp"

namespace sparfuse::bench {

// torch.topk of the magnitudes of x, seen as rows of `length` elements, and a gather of the values.
// One call selects k elements from each row. x: [rows * length], read by every call. `threads`
// applies to the whole process.
std::function<void()> TorchTopK(const float* x, std::size_t rows, std::size_t length, std::size_t k,
                                int threads);

#ifdef SPARFUSE_CUDA
// The same for one row on a CUDA card, in the order of `stream`. x: [n], on the card.
std::function<void()> TorchTopKOnCard(const float* x, std::size_t n, std::size_t k,
                                      const Stream& stream);

// Frees the memory that LibTorch caches on the card. It caches memory for each stream separately,
// even for streams that no longer exist.
void FreeTorchMemoryOnCard();
#endif

}  // namespace sparfuse::bench
