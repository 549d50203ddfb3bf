#include "core/device/cuda/cuda_launch.cuh"
#include "core/quantize/payload_coding_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::RoundToHalves)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::CountEscapes)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::EncodeElements)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DecodeElements)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ChainTiles)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::WriteIndices)
