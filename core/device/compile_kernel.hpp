// Compiles a kernel for the device that the compiler makes code for. A .cu file names its kernels:
//
//   #include "core/device/compile_kernel.hpp"
//   #include "core/sparsify/dgc/dgc_kernels.hpp"
//
//   SPARFUSE_KERNEL(sparfuse::gpu::DgcDecide)
//
// nvcc compiles it for CUDA, a C++ compiler for the emulated device of tests.
#pragma once

#ifdef __CUDACC__
#include "core/device/cuda/cuda_launch.cuh"
#define SPARFUSE_KERNEL(...) SPARFUSE_CUDA_KERNEL(__VA_ARGS__)
#else
#include "core/device/emulated/emulated_launch.hpp"
#define SPARFUSE_KERNEL(...) SPARFUSE_EMULATED_KERNEL(__VA_ARGS__)
#endif
