#include "core/device/cuda/cuda_launch.cuh"
#include "core/feedback/norm/norm_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumSquaresOfTiles)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumTiles)
