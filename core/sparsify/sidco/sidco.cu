#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/sidco/sidco_kernels.hpp"

namespace gpu = sparfuse::gpu;

SPARFUSE_CUDA_KERNEL(gpu::SidcoBegin)
SPARFUSE_CUDA_KERNEL(gpu::Collect<gpu::MeasureAll<gpu::AimAtFit>>)
SPARFUSE_CUDA_KERNEL(gpu::SidcoAdapt)
SPARFUSE_CUDA_KERNEL(gpu::SidcoPaperBegin)
SPARFUSE_CUDA_KERNEL(gpu::Collect<gpu::MeasureAll<gpu::FitStage>>)
