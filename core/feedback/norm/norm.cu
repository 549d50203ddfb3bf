#include "core/device/compile_kernel.hpp"
#include "core/feedback/norm/norm_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::SumSquaresOfTiles)
SPARFUSE_KERNEL(sparfuse::gpu::SumTiles)
