#include "core/device/compile_kernel.hpp"
#include "core/feedback/momentum/momentum_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::AdvanceVelocities<false>)
SPARFUSE_KERNEL(sparfuse::gpu::AdvanceVelocities<true>)
SPARFUSE_KERNEL(sparfuse::gpu::MaskVelocities)
