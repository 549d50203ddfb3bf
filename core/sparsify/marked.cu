#include "core/gpu/cuda_launch.cuh"
#include "core/sparsify/marked_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::TakeMarked<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::TakeMarked<false>)
