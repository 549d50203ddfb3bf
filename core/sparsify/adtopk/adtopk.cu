#include "core/device/compile_kernel.hpp"
#include "core/sparsify/adtopk/fibre_device_kernels.hpp"
#include "core/sparsify/adtopk/kept_threshold_kernels.hpp"

namespace {
template <int kThreads>
using Rows = sparfuse::gpu::SelectRows<false, kThreads>;
template <int kThreads>
using TransposedRows = sparfuse::gpu::SelectRows<true, kThreads>;
}  // namespace

SPARFUSE_KERNEL(sparfuse::gpu::SelectTiles<4>)
SPARFUSE_KERNEL(sparfuse::gpu::SelectTiles<16>)
SPARFUSE_KERNEL(sparfuse::gpu::SelectTiles<32>)
SPARFUSE_KERNEL(sparfuse::gpu::SelectColumns<16>)
SPARFUSE_KERNEL(sparfuse::gpu::SelectColumns<32>)
SPARFUSE_KERNEL(sparfuse::gpu::SelectThinColumns)
SPARFUSE_KERNEL(Rows<256>)
SPARFUSE_KERNEL(Rows<512>)
SPARFUSE_KERNEL(TransposedRows<256>)
SPARFUSE_KERNEL(TransposedRows<512>)
SPARFUSE_KERNEL(sparfuse::gpu::Transpose)
SPARFUSE_KERNEL(sparfuse::gpu::BeginPhase)
SPARFUSE_KERNEL(sparfuse::gpu::ChooseReaching)
SPARFUSE_KERNEL(sparfuse::gpu::FindSmallest)
SPARFUSE_KERNEL(sparfuse::gpu::LearnThreshold)
