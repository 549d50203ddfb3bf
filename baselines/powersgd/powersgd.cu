#include "baselines/powersgd/powersgd_kernels.hpp"
#include "core/device/compile_kernel.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::CheckProduct)
SPARFUSE_KERNEL(sparfuse::gpu::RedrawColumns)
SPARFUSE_KERNEL(sparfuse::gpu::OrthonormalizeColumns)
SPARFUSE_KERNEL(sparfuse::gpu::ReconstructRows)
