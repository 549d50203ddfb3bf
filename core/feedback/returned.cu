#include "core/device/compile_kernel.hpp"
#include "core/feedback/returned_kernels.hpp"

SPARFUSE_KERNEL(sparfuse::gpu::AddReturnedElements)
