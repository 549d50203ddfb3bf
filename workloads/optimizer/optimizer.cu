#include "core/device/cuda/cuda_launch.cuh"
#include "workloads/optimizer/optimizer_kernel.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::OptimizerKernel<sparfuse::SgdRule>)
SPARFUSE_CUDA_KERNEL(sparfuse::OptimizerKernel<sparfuse::AdamRule>)
