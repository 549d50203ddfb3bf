// Has the compiler vectorise the same loops for AVX2, and converts halves.
#if defined(__x86_64__)
#include <immintrin.h>

#include "core/coding/quantizers/quantize_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/coding/quantizers/quantize_kernels_loops.inc"
// Builds on the loops, so it follows them.
#include "core/coding/quantizers/quantize_kernels_f16c.inc"

}  // namespace

const QuantizeKernels kQuantizeKernelsAvx2 =
    SPARFUSE_QUANTIZE_KERNELS(HalfEncodeF16c, HalfDecodeF16c<false>, HalfDecodeF16c<true>);

}  // namespace sparfuse
#endif
