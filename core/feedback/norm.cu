#include "core/feedback/norm_kernels.hpp"
#include "core/gpu/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumSquaresOfTiles)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumTiles)
