#include "core/adtopk/kept_threshold_kernels.hpp"
#include "core/gpu/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::BeginPhase)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ChooseReaching)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::FindSmallest)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::LearnThreshold)
