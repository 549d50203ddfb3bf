// Declares the inner loops of the selection in fibres, one table an instruction set; all tables
// give equal results. Keys are those of core/sparsify/scan/simd/select_kernels.hpp, and so is the
// rule: no inline functions that files of other instruction sets share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/sparsify/scan/simd/select_kernels.hpp"

namespace sparfuse {

inline constexpr std::size_t kScanLanes = 64;  // elements that one round of a scan compares
inline constexpr std::size_t kRankRoom = 64;   // most elements that `rank` takes

// What a scan reads and where what it finds goes.
struct FibreScan {
  const float* gradient;
  float* residual;  // null: none, or added already
  std::size_t n;
  // Element i is compared with bounds[i % period]; period + kScanLanes - 1 entries, repeating.
  const std::uint32_t* bounds;
  std::size_t period;
  std::size_t ahead;   // elements from the one that is read to the one that is prefetched; 0: none
  std::uint32_t base;  // index of element 0
  // Room for n + 16: up to 16 entries behind the last that is found are overwritten.
  std::uint32_t* indices;
  float* values;
};

struct FibreKernels {
  // Finds the elements with key >= their bound, in order. Adds the residual first, where there is
  // one: residual[i] = gradient[i] + residual[i], and that sum is compared. Returns how many were
  // found and raises *largest to the largest key of all elements.
  std::size_t (*scan)(const FibreScan& scan, std::uint32_t* largest);

  // The k-th largest key of `values`, and in *reach the number of keys that are at least that.
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
