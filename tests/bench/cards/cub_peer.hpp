// Runs CUB's selections on a CUDA card, as they come with the toolkit, as rivals in benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device/device.hpp"

namespace sparfuse::bench {

// What a rival writes first in its memory on the card: the k largest magnitudes and their
// positions, in any order.
struct CubSelection {
  std::uint32_t* magnitudes = nullptr;  // bits of a float without the sign
  std::uint32_t* indices = nullptr;
};

struct CubRival {
  std::string name;
  // Makes a selection of k of the n floats x, in the order of `stream`. The call owns its memory.
  std::function<std::function<CubSelection()>(const float* x, std::size_t n, std::size_t k,
                                              const Stream& stream)>
      make;
};

// cub::DeviceRadixSort of all magnitudes with their positions; where the toolkit has it (CCCL 3.3),
// cub::DeviceTopK, which is the radix selection that RAFT uses, too.
std::vector<CubRival> CubRivals();

}  // namespace sparfuse::bench
