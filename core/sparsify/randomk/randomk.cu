#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/randomk/randomk_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DrawRound)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DrawRest)
