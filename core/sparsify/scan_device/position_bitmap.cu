#include "core/device/compile_kernel.hpp"
#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::TakeBitmap<true>)
SPARFUSE_KERNEL(sparfuse::gpu::TakeBitmap<false>)
