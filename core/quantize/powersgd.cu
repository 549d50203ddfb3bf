#include "core/gpu/cuda_launch.cuh"
#include "core/quantize/powersgd_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::CheckProduct)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::RedrawColumns)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::OrthonormalizeColumns)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ReconstructRows)
