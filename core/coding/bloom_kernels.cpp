// Holds the portable loops, and chooses among the tables.
#include "core/coding/bloom_kernels.hpp"

#include "core/base/cpu.hpp"

namespace sparfuse {
namespace {

#include "core/coding/bloom_kernels.inc"

}  // namespace

const BloomKernels kBloomKernelsPortable = {Query<QueryBatch>, Insert};

const BloomKernels& BloomKernelsFor(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return kBloomKernelsAvx512;
  if (isa == Isa::kAvx2) return kBloomKernelsAvx2;
#endif
  (void)isa;
  return kBloomKernelsPortable;
}

}  // namespace sparfuse
