#include "core/device/compile_kernel.hpp"
#include "core/sparsify/reused_threshold/reused_threshold_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::ReuseGuard)
SPARFUSE_KERNEL(sparfuse::gpu::LearnReused)
