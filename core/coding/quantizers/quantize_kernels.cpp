// Holds the portable kernels, and chooses among the tables.
#include "core/coding/quantizers/quantize_kernels.hpp"

#include "core/base/cpu.hpp"

namespace sparfuse {
namespace {

#include "core/coding/quantizers/quantize_kernels_loops.inc"

}  // namespace

const QuantizeKernels kQuantizeKernelsPortable =
    SPARFUSE_QUANTIZE_KERNELS(HalfEncode, HalfDecode, HalfAdd);

const QuantizeKernels& QuantizeKernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kQuantizeKernelsAvx512;
  if (isa == Isa::kAvx2) return kQuantizeKernelsAvx2;
#endif
  (void)isa;
  return kQuantizeKernelsPortable;
}

}  // namespace sparfuse
