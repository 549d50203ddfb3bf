#include "core/device/cuda/cuda_launch.cuh"
#include "core/feedback/momentum/momentum_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AdvanceVelocities<false>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AdvanceVelocities<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::MaskVelocities)
