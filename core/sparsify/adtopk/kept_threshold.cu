#include "core/sparsify/adtopk/kept_threshold_kernels.hpp"
#include "core/device/cuda/cuda_launch.cuh"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::BeginPhase)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::ChooseReaching)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::FindSmallest)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::LearnThreshold)
