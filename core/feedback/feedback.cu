#include "core/device/compile_kernel.hpp"
#include "core/feedback/momentum/momentum_kernels.hpp"
#include "core/feedback/norm/norm_kernels.hpp"
#include "core/feedback/returned_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::AdvanceVelocities<false>)
SPARFUSE_KERNEL(sparfuse::gpu::AdvanceVelocities<true>)
SPARFUSE_KERNEL(sparfuse::gpu::MaskVelocities)
SPARFUSE_KERNEL(sparfuse::gpu::SumSquaresOfTiles)
SPARFUSE_KERNEL(sparfuse::gpu::SumTiles)
SPARFUSE_KERNEL(sparfuse::gpu::AddReturnedElements)
