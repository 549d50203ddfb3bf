// Runs LibTorch's own selection, for our benchmarks: what users have today. Only with LibTorch.
#pragma once

#include <cstddef>
#include <functional>

#include "core/device/device.hpp"

namespace sparfuse::bench {

// torch.topk of the magnitudes of x, seen as rows of `length` elements, and a gather of the values:
// one call is one selection of k elements a row. x: [rows * length], read by every call. `threads`
// holds for the process.
std::function<void()> TorchTopK(const float* x, std::size_t rows, std::size_t length, std::size_t k,
                                int threads);

#ifdef SPARFUSE_CUDA
// The same of one row on a CUDA card, in the order of `stream`. x: [n], there.
std::function<void()> TorchTopKOnCard(const float* x, std::size_t n, std::size_t k,
                                      const Stream& stream);

// Gives back the memory that LibTorch keeps on the card, and keeps for each stream by itself, also
// for those that are gone.
void FreeTorchMemoryOnCard();
#endif

}  // namespace sparfuse::bench
