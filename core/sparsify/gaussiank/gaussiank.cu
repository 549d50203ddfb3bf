#include "core/device/compile_kernel.hpp"
#include "core/sparsify/gaussiank/gaussiank_kernels.hpp"

namespace gpu = sparfuse::gpu;

SPARFUSE_KERNEL(gpu::Collect<gpu::MeasureMoments<gpu::AimAtGaussian>>)
SPARFUSE_KERNEL(gpu::Collect<gpu::MeasureMoments<gpu::ListTries>>)
SPARFUSE_KERNEL(gpu::Collect<gpu::MeasureAll<gpu::ChooseTry>>)
