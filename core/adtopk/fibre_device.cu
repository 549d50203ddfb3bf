#include "core/adtopk/fibre_device_kernels.hpp"
#include "core/gpu/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectTiles<false>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectTiles<true>)
using SelectRows256 = sparfuse::gpu::SelectRows<false, 256>;
using SelectRows1024 = sparfuse::gpu::SelectRows<false, 1024>;
using MarkRows256 = sparfuse::gpu::SelectRows<true, 256>;
using MarkRows1024 = sparfuse::gpu::SelectRows<true, 1024>;
SPARFUSE_CUDA_KERNEL(SelectRows256)
SPARFUSE_CUDA_KERNEL(SelectRows1024)
SPARFUSE_CUDA_KERNEL(MarkRows256)
SPARFUSE_CUDA_KERNEL(MarkRows1024)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Transpose)
