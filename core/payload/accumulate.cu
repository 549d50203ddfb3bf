#include "core/device/cuda/cuda_launch.cuh"
#include "core/payload/accumulate_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::FindChunks)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::SumChunks)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ScaleElements)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::AddElements)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::CopyFiniteElements)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::CountParts)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::MergeParts)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::CountMissingTensors)
