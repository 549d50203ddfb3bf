#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/adtopk/kept_threshold_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::BeginPhase)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ChooseReaching)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::FindSmallest)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::LearnThreshold)
