#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/scan_device/scan_kernels.hpp"
#include "core/sparsify/scan_device/small_tensor_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Prepare)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Collect<sparfuse::NoMeasure>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Send)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendExact)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendAll)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendLargestOfSmall<256>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SendLargestOfSmall<1024>)
