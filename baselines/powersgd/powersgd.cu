#include "baselines/powersgd/powersgd_kernels.hpp"
#include "core/device/cuda/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::CheckProduct)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::RedrawColumns)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::OrthonormalizeColumns)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ReconstructRows)
