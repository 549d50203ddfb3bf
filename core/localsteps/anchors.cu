#include "core/device/compile_kernel.hpp"
#include "core/localsteps/anchor_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::PackParameters)
SPARFUSE_KERNEL(sparfuse::gpu::StepAnchor)
SPARFUSE_KERNEL(sparfuse::gpu::SwapElements)
