// Launches kernels on CUDA: what compile_kernel.hpp compiles a kernel into there.
#pragma once

#include <cuda_runtime.h>

#include "core/device/cuda/cuda_block.cuh"
#include "core/device/device.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    RunKernel(const __grid_constant__ Kernel kernel, const std::uint32_t* only_if) {
  if (only_if != nullptr && *only_if == 0) return;
  __shared__ typename Kernel::Shared shared;
  CudaBlock<Kernel::kThreads> block;
  kernel(block, shared);
}

template <class Kernel>
void LaunchOnCuda(const Stream& stream, unsigned blocks, const Kernel& kernel,
                  const std::uint32_t* only_if) {
  cudaError_t status = cudaSetDevice(stream.device.index);
  if (status == cudaSuccess) {
    RunKernel<<<blocks, Kernel::kThreads, 0, static_cast<cudaStream_t>(stream.native)>>>(kernel,
                                                                                         only_if);
    status = cudaGetLastError();
  }
  CheckStatus(status, Kernel::kName, cudaGetErrorString(status));
}

}  // namespace sparfuse::gpu

#define SPARFUSE_CUDA_KERNEL(...)                         \
  template void sparfuse::gpu::LaunchOnCuda<__VA_ARGS__>( \
      const ::sparfuse::Stream&, unsigned, const __VA_ARGS__&, const std::uint32_t*);
