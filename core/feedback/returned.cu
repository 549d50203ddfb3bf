#include "core/feedback/returned_kernels.hpp"
#include "core/device/cuda/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AddReturnedElements)
