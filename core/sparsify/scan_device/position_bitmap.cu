#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::TakeMarked<true>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::TakeMarked<false>)
