// Launches kernels on CUDA. For CUDA, compile_kernel.hpp compiles a kernel with this header.
#pragma once

#include <cuda_runtime.h>

#include <cub/block/block_scan.cuh>
#include <cuda/atomic>

#include "core/device/device.hpp"
#include "core/device/kernel.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {

// Implements the block of kernel.hpp by CUDA threads.

template <int Threads>
class CudaBlock {
 public:
  static constexpr int kThreads = Threads;
  static constexpr int kWarps = Threads / kWarp;

  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ unsigned lane() const { return threadIdx.x % kWarp; }
  __device__ unsigned warp() const { return threadIdx.x / kWarp; }
  __device__ unsigned block() const { return blockIdx.x; }
  __device__ unsigned blocks() const { return gridDim.x; }

  __device__ void Sync() const { __syncthreads(); }
  __device__ void SyncWarp() const { __syncwarp(); }

  __device__ std::uint32_t Ballot(bool predicate) const { return __ballot_sync(kAll, predicate); }
  template <class T>
  __device__ T Shuffle(T value, unsigned lane) const {
    return __shfl_sync(kAll, value, static_cast<int>(lane));
  }
  template <class T>
  __device__ T ShuffleUp(T value, unsigned distance) const {
    return __shfl_up_sync(kAll, value, distance);
  }
  template <class T>
  __device__ T ShuffleXor(T value, unsigned mask) const {
    return __shfl_xor_sync(kAll, value, static_cast<int>(mask));
  }

  template <class T>
  __device__ T Sum(T value) const {
    return Reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  __device__ T Max(T value) const {
    return Reduce(value, [](T a, T b) { return a < b ? b : a; });
  }
  template <class T>
  __device__ T ExclusiveSum(T value, T* total) const {
    using Scan = cub::BlockScan<T, Threads>;
    __shared__ typename Scan::TempStorage storage;
    T before;
    Scan(storage).ExclusiveSum(value, before, *total);
    __syncthreads();
    return before;
  }

  __device__ std::uint32_t AtomicAdd(std::uint32_t* at, std::uint32_t value) const {
    return atomicAdd(at, value);
  }
  __device__ std::uint64_t AtomicAdd(std::uint64_t* at, std::uint64_t value) const {
    return atomicAdd(Wide(at), static_cast<unsigned long long>(value));
  }
  __device__ std::uint32_t AtomicMax(std::uint32_t* at, std::uint32_t value) const {
    return atomicMax(at, value);
  }
  __device__ std::uint64_t AtomicMax(std::uint64_t* at, std::uint64_t value) const {
    return atomicMax(Wide(at), static_cast<unsigned long long>(value));
  }
  __device__ std::uint32_t AtomicOr(std::uint32_t* at, std::uint32_t value) const {
    return atomicOr(at, value);
  }
  __device__ std::uint64_t AtomicOr(std::uint64_t* at, std::uint64_t value) const {
    return atomicOr(Wide(at), static_cast<unsigned long long>(value));
  }
  template <class T>
  __device__ T LoadAcquire(T* at) const {
    return cuda::atomic_ref<T, cuda::thread_scope_device>(*at).load(cuda::memory_order_acquire);
  }
  template <class T>
  __device__ void StoreRelease(T* at, T value) const {
    cuda::atomic_ref<T, cuda::thread_scope_device>(*at).store(value, cuda::memory_order_release);
  }
  template <class T>
  __device__ T LoadRelaxed(T* at) const {
    return cuda::atomic_ref<T, cuda::thread_scope_device>(*at).load(cuda::memory_order_relaxed);
  }
  template <class T>
  __device__ void StoreRelaxed(T* at, T value) const {
    cuda::atomic_ref<T, cuda::thread_scope_device>(*at).store(value, cuda::memory_order_relaxed);
  }

  __device__ float LoadStreaming(const float* at) const { return __ldcs(at); }
  __device__ Float4 LoadStreaming(const Float4* at) const {
    const float4 loaded = __ldcs(reinterpret_cast<const float4*>(at));
    return {{loaded.x, loaded.y, loaded.z, loaded.w}};
  }

  __device__ void Pause() const { __nanosleep(20); }

 private:
  static __device__ unsigned long long* Wide(std::uint64_t* at) {
    return reinterpret_cast<unsigned long long*>(at);
  }

  static constexpr unsigned kAll = 0xffffffffu;

  // Reduces each warp in a butterfly, then the warps' results in order. EmulatedBlock adds in the
  // same order.
  template <class T, class Combine>
  __device__ T Reduce(T value, Combine combine) const {
    __shared__ T of_warps[kWarps];
    for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
      value = combine(value, ShuffleXor(value, mask));
    }
    if (lane() == 0) of_warps[warp()] = value;
    __syncthreads();
    T all = of_warps[0];
    for (int w = 1; w < kWarps; ++w) all = combine(all, of_warps[w]);
    __syncthreads();
    return all;
  }
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    RunKernel(const __grid_constant__ Kernel kernel, const std::uint32_t* only_if) {
  if (only_if != nullptr && *only_if == 0) return;
  __shared__ SharedOf<Kernel> shared;
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
  CheckStatus(status, NameOf<Kernel>(), cudaGetErrorString(status));
}

}  // namespace sparfuse::gpu

#define SPARFUSE_CUDA_KERNEL(...)                         \
  template void sparfuse::gpu::LaunchOnCuda<__VA_ARGS__>( \
      const ::sparfuse::Stream&, unsigned, const __VA_ARGS__&, const std::uint32_t*);
