#include "core/device/compile_kernel.hpp"
#include "core/sparsify/adtopk/kept_threshold_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::BeginPhase)
SPARFUSE_KERNEL(sparfuse::gpu::ChooseReaching)
SPARFUSE_KERNEL(sparfuse::gpu::FindSmallest)
SPARFUSE_KERNEL(sparfuse::gpu::LearnThreshold)
