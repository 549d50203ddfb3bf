#include "core/gpu/cuda_launch.cuh"
#include "core/sparsify/scan_kernels.hpp"
#include "core/sparsify/whole_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Prepare)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Collect<sparfuse::NoMeasure>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Send)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendExact)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendAll)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendLargestOfSmall<256>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendLargestOfSmall<1024>)
