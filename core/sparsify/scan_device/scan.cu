#include "core/device/compile_kernel.hpp"
#include "core/sparsify/scan_device/position_bitmap_kernels.hpp"
#include "core/sparsify/scan_device/scan_kernels.hpp"
#include "core/sparsify/scan_device/small_tensor_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::Prepare)
SPARFUSE_KERNEL(sparfuse::gpu::Collect<sparfuse::NoMeasure>)
SPARFUSE_KERNEL(sparfuse::gpu::Send)
SPARFUSE_KERNEL(sparfuse::gpu::SendExact)
SPARFUSE_KERNEL(sparfuse::gpu::SendAll)
SPARFUSE_KERNEL(sparfuse::gpu::SendLargestOfSmall<256>)
SPARFUSE_KERNEL(sparfuse::gpu::SendLargestOfSmall<1024>)
SPARFUSE_KERNEL(sparfuse::gpu::TakeBitmap<true>)
SPARFUSE_KERNEL(sparfuse::gpu::TakeBitmap<false>)
