#include "core/device/compile_kernel.hpp"
#include "core/sparsify/sidco/sidco_kernels.hpp"

namespace gpu = sparfuse::gpu;

SPARFUSE_KERNEL(gpu::SidcoBegin)
SPARFUSE_KERNEL(gpu::Collect<gpu::MeasureAll<gpu::AimAtFit>>)
SPARFUSE_KERNEL(gpu::SidcoAdapt)
SPARFUSE_KERNEL(gpu::SidcoPaperBegin)
SPARFUSE_KERNEL(gpu::Collect<gpu::MeasureAll<gpu::FitStage>>)
