#include "core/feedback/momentum/momentum_kernels.hpp"
#include "core/device/cuda/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AdvanceVelocities<false>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AdvanceVelocities<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::MaskVelocities)
