// Holds the portable kernels, and chooses among the tables.
#include "core/sparsify/adtopk/fibre_kernels.hpp"

#include "core/base/cpu.hpp"

namespace sparfuse {
namespace {

#include "core/sparsify/adtopk/fibre_kernels.inc"

std::size_t Scan(const FibreScan& s, std::uint32_t* largest) {
  return ScanRest(s, 0, 0, 0, largest);
}

}  // namespace

const FibreKernels kFibreKernelsPortable = {Scan, Rank};

const FibreKernels& FibreKernelsFor(Isa isa) {
#if defined(__x86_64__)
  // As SelectKernelsFor does.
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512vbmi2")) return kFibreKernelsAvx512;
  if (isa != Isa::kPortable) return kFibreKernelsAvx2;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return kFibreKernelsNeon;
#endif
  (void)isa;
  return kFibreKernelsPortable;
}

}  // namespace sparfuse
