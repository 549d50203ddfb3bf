// Compiles the same loops for AVX2.
#if defined(__x86_64__)
#include "core/coding/bloom_kernels.hpp"

namespace sparfuse {
namespace {

#include "core/coding/bloom_kernels.inc"

}  // namespace

const BloomKernels kBloomKernelsAvx2 = {Query<QueryBatch>, Insert};

}  // namespace sparfuse
#endif
