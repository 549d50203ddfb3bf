#include "core/coding/payload_coding_kernels.hpp"
#include "core/device/compile_kernel.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::RoundToHalves)
SPARFUSE_KERNEL(sparfuse::gpu::CountEscapes)
SPARFUSE_KERNEL(sparfuse::gpu::EncodeElements)
SPARFUSE_KERNEL(sparfuse::gpu::DecodeElements)
SPARFUSE_KERNEL(sparfuse::gpu::ChainTiles)
SPARFUSE_KERNEL(sparfuse::gpu::WriteIndices)
