#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/mstopk/mstopk_kernels.hpp"

namespace gpu = sparfuse::gpu;

SPARFUSE_CUDA_KERNEL(gpu::Collect<gpu::MeasureMoments<gpu::NoteRange>>)
SPARFUSE_CUDA_KERNEL(gpu::FindBracket)
SPARFUSE_CUDA_KERNEL(gpu::CountBracket)
SPARFUSE_CUDA_KERNEL(gpu::SendBracket)
