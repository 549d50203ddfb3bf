#include "core/device/cuda/cuda_launch.cuh"
#include "tests/bench/gpu_limit_kernels.hpp"

SPARFUSE_CUDA_KERNEL(sparfuse::bench::SumAbsOnCard)
SPARFUSE_CUDA_KERNEL(sparfuse::bench::AddOnCard)
