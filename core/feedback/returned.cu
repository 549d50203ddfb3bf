#include "core/device/cuda/cuda_launch.cuh"
#include "core/feedback/returned_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AddReturnedElements)
