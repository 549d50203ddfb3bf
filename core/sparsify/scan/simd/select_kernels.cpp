// Holds the portable kernels, and chooses among the tables.
#include "core/sparsify/scan/simd/select_kernels.hpp"

#include "core/base/cpu.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/scan/simd/select_kernels_loops.inc"
#include "core/sparsify/scan/simd/select_kernels_scalar.inc"
#include "core/sparsify/scan/simd/select_kernels_statistics.inc"

std::size_t Scan(const float* gradient, const float* residual, float* sum, std::size_t n,
                 std::uint32_t lo, std::uint16_t* offsets) {
  if (residual != nullptr) {
    for (std::size_t i = 0; i < n; ++i) sum[i] = gradient[i] + residual[i];
    gradient = sum;
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    offsets[count] = static_cast<std::uint16_t>(i);
    count += static_cast<std::size_t>(Key(gradient[i]) >= lo);
  }
  return count;
}

std::size_t ScanApart(const float* gradient, const float* residual, std::size_t n, std::uint32_t lo,
                      std::uint32_t zero_from, std::uint16_t* offsets, float* to) {
  const std::size_t count = Scan(gradient, residual, to, n, lo, offsets);
  const std::int32_t below = SignedBelow(zero_from);
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = static_cast<std::int32_t>(Key(to[i])) > below ? 0.0f : to[i];
  }
  return count;
}

std::size_t CountAtLeast(const std::uint32_t* keys, std::size_t n, std::uint32_t lo) {
  const std::int32_t below = SignedBelow(lo);
  std::size_t count = 0;
  while (n > 0) {  // 32-bit sums vectorise twice as wide as 64-bit ones
    const std::size_t part = n < (1u << 30) ? n : (1u << 30);
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < part; ++i) {
      sum += static_cast<std::int32_t>(static_cast<std::int32_t>(keys[i]) > below);
    }
    count += static_cast<std::size_t>(sum);
    keys += part;
    n -= part;
  }
  return count;
}

}  // namespace

const SelectKernels kSelectKernelsPortable = {
    Scan,    ScanApart,   Positions,         Gather,       GatherSums,  Clear,
    Put,     Add,         MakeKeys,          CountAtLeast, KeysInRange, Emit,
    Measure, MeasureTail, MultiplyMantissas, CountReaching};

#if defined(__x86_64__)
const bool kPrefetchPays = !__builtin_cpu_is("amd");
#else
const bool kPrefetchPays = true;
#endif

const SelectKernels& SelectKernelsFor(Isa isa) {
#if defined(__x86_64__)
  // These kernels need VBMI2 beside kAvx512: Ice Lake, Zen 4 or later.
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vbmi2")) return kSelectKernelsAvx512;
  if (isa != Isa::kPortable) return kSelectKernelsAvx2;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return kSelectKernelsNeon;
#endif
  (void)isa;
  return kSelectKernelsPortable;
}

}  // namespace sparfuse
