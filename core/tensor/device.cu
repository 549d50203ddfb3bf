// Memory on CUDA devices. The only CUDA file that every CUDA build has; kernels sit beside their
// host versions.
#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdio>
#include <string>

#include "core/tensor/device_cuda.hpp"

namespace sparfuse {
namespace {

// Names the failing call. Throws Error{kOutOfMemory} for allocation failure, else Error{kInternal}.
void CheckCuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  const std::string what = std::string(call) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) SPARFUSE_THROW(kOutOfMemory, what);
  SPARFUSE_THROW(kInternal, what);
}
#define SPARFUSE_CUDA_CALL(call) CheckCuda((call), #call)

__global__ void ZeroKernel(unsigned char* data, std::size_t bytes) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < bytes;
       i += stride) {
    data[i] = 0;
  }
}

}  // namespace

namespace cuda {

void* Allocate(std::size_t bytes, int device_index) {
  void* pointer = nullptr;
  SPARFUSE_CUDA_CALL(cudaSetDevice(device_index));
  SPARFUSE_CUDA_CALL(cudaMalloc(&pointer, bytes));
  return pointer;
}

void Free(void* pointer, int device_index) noexcept {
  cudaSetDevice(device_index);
  cudaFree(pointer);
}

void FillZero(void* pointer, std::size_t bytes, Stream stream) {
  SPARFUSE_CUDA_CALL(cudaSetDevice(stream.device.index));
  const unsigned blocks = static_cast<unsigned>(std::min<std::size_t>((bytes + 255) / 256, 4096));
  ZeroKernel<<<blocks, 256, 0, static_cast<cudaStream_t>(stream.native)>>>(
      static_cast<unsigned char*>(pointer), bytes);
  SPARFUSE_CUDA_CALL(cudaGetLastError());
}

}  // namespace cuda

int CudaDeviceCount() noexcept {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

const char* CudaBuildInfo() noexcept {
  static const std::string info = [] {
    int runtime = 0;
    int nccl = 0;
    cudaRuntimeGetVersion(&runtime);
    ncclGetVersion(&nccl);
    return "CUDA runtime " + std::to_string(runtime / 1000) + "." +
           std::to_string(runtime % 1000 / 10) + ", NCCL " + std::to_string(nccl / 10000) + "." +
           std::to_string(nccl / 100 % 100) + "." + std::to_string(nccl % 100);
  }();
  return info.c_str();
}

}  // namespace sparfuse
