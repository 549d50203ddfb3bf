#include "core/device/compile_kernel.hpp"
#include "core/payload/accumulate_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::FindChunks)
SPARFUSE_KERNEL(sparfuse::gpu::SumChunks)
SPARFUSE_KERNEL(sparfuse::gpu::ScaleElements)
SPARFUSE_KERNEL(sparfuse::gpu::CopyFiniteElements)
SPARFUSE_KERNEL(sparfuse::gpu::CountParts)
SPARFUSE_KERNEL(sparfuse::gpu::MergeParts)
SPARFUSE_KERNEL(sparfuse::gpu::CountMissingTensors)
