#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/gaussiank/gaussiank_kernels.hpp"

namespace gpu = sparfuse::gpu;

SPARFUSE_CUDA_KERNEL(gpu::Collect<gpu::MeasureMoments<gpu::AimAtGaussian>>)
SPARFUSE_CUDA_KERNEL(gpu::Collect<gpu::MeasureMoments<gpu::ListTries>>)
SPARFUSE_CUDA_KERNEL(gpu::Collect<gpu::MeasureAll<gpu::ChooseTry>>)
