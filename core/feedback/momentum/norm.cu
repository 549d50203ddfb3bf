#include "core/feedback/momentum/norm_kernels.hpp"
#include "core/device/cuda/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumSquaresOfTiles)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumTiles)
