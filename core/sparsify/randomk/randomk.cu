#include "core/device/compile_kernel.hpp"
#include "core/sparsify/randomk/randomk_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::DrawRound)
SPARFUSE_KERNEL(sparfuse::gpu::DrawRest)
