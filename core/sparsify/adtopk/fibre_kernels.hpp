// Declares the inner loops of the selection in fibres, one table for each instruction set; all
// tables give equal results. core/sparsify/scan/simd/select_kernels.hpp defines keys. Its rule
// holds here too: no inline functions that files of other instruction sets share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {

inline constexpr std::size_t kScanLanes = 64;  // elements that one round of a scan compares
inline constexpr std::size_t kRankRoom = 64;   // most elements that `rank` takes

// The input and the output of a scan.
struct FibreScan {
  const float* gradient;
  float* residual;  // null: none, or already added
  std::size_t n;
  // Element i is compared with bounds[i % period]; period + kScanLanes - 1 entries, repeating.
  const std::uint32_t* bounds;
  std::size_t period;
  std::size_t ahead;   // distance in elements of the prefetch; 0: no prefetch
  std::uint32_t base;  // index of element 0
  // Room for n + 16: up to 16 entries after the last element found are overwritten.
  std::uint32_t* indices;
  float* values;
};

struct FibreKernels {
  // Finds the elements with key >= their bound, in order. If there is a residual, first adds
  // residual[i] = gradient[i] + residual[i], and compares the sums. Returns the number of elements
  // found and raises *largest to the largest key of all elements.
  std::size_t (*scan)(const FibreScan& scan, std::uint32_t* largest);

  // Returns the k-th largest key of `values`, and in *reach the number of keys that are at least
  // it.
  // Precondition: 1 <= k <= n <= kRankRoom.
  std::uint32_t (*rank)(const float* values, std::size_t n, std::size_t k, std::size_t* reach);
};

const FibreKernels& FibreKernelsFor(Isa isa);

extern const FibreKernels kFibreKernelsPortable;
#if defined(__x86_64__)
extern const FibreKernels kFibreKernelsAvx2;
extern const FibreKernels kFibreKernelsAvx512;
#elif defined(__aarch64__)
extern const FibreKernels kFibreKernelsNeon;
#endif

}  // namespace sparfuse
