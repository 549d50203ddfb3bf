#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/adtopk/fibre_device_kernels.hpp"

namespace {
template <int kThreads>
using Rows = sparfuse::gpu::SelectRows<false, kThreads>;
template <int kThreads>
using MarkedRows = sparfuse::gpu::SelectRows<true, kThreads>;
}  // namespace

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectTiles<4>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectTiles<16>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectTiles<32>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectColumns<16>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectColumns<32>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SelectThinColumns)
SPARFUSE_CUDA_KERNEL(Rows<256>)
SPARFUSE_CUDA_KERNEL(Rows<512>)
SPARFUSE_CUDA_KERNEL(MarkedRows<256>)
SPARFUSE_CUDA_KERNEL(MarkedRows<512>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::Transpose)
