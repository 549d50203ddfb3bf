#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/reused_threshold/reused_threshold_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ReuseGuard)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::LearnReused)
