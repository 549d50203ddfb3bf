#include "core/device/compile_kernel.hpp"
#include "core/localsteps/anchor_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::PackParameters)
SPARFUSE_KERNEL(sparfuse::gpu::StepAnchor)
SPARFUSE_KERNEL(sparfuse::gpu::GrowMomentum)
SPARFUSE_KERNEL(sparfuse::gpu::ClipOuter)
SPARFUSE_KERNEL(sparfuse::gpu::MoveClippedAnchor)
SPARFUSE_KERNEL(sparfuse::gpu::SwapElements)
