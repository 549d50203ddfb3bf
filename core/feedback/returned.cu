#include "core/feedback/returned_kernels.hpp"
#include "core/gpu/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AddReturnedElements)
