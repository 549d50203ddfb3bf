#include "core/gpu/cuda_launch.cuh"
#include "core/sparsify/randomk_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DrawRound)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DrawRest)
