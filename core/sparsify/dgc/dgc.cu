#include "core/device/cuda/cuda_launch.cuh"
#include "core/sparsify/dgc/dgc_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DgcFromRandom)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DgcDecide)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DgcFromAll)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DgcOfSmall<256>)
SPARFUSE_CUDA_KERNEL(sparfuse::gpu::DgcOfSmall<1024>)
