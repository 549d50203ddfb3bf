#include "core/device/compile_kernel.hpp"
#include "core/sparsify/dgc/dgc_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::DgcFromRandom)
SPARFUSE_KERNEL(sparfuse::gpu::DgcDecide)
SPARFUSE_KERNEL(sparfuse::gpu::DgcFromAll)
SPARFUSE_KERNEL(sparfuse::gpu::DgcOfSmall<256>)
SPARFUSE_KERNEL(sparfuse::gpu::DgcOfSmall<1024>)
