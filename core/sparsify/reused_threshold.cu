#include "core/gpu/cuda_launch.cuh"
#include "core/sparsify/reused_threshold_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ReuseGuard)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::LearnReused)
