#include "core/device/compile_kernel.hpp"
#include "core/sparsify/mstopk/mstopk_kernels.hpp"

namespace gpu = sparfuse::gpu;

SPARFUSE_KERNEL(gpu::Collect<gpu::MeasureMoments<gpu::NoteRange>>)
SPARFUSE_KERNEL(gpu::FindBracket)
SPARFUSE_KERNEL(gpu::CountBracket)
SPARFUSE_KERNEL(gpu::SendBracket)
