#include "tests/bench/torch_peer.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#ifdef SPARFUSE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace sparfuse::bench {

std::function<void()> TorchTopK(const float* x, std::size_t rows, std::size_t length, std::size_t k,
                                int threads) {
  at::set_num_threads(threads);
  // from_blob takes writable memory; topk and gather only read it.
  const at::Tensor tensor = at::from_blob(
      const_cast<float*>(x), {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(length)});
  return [tensor, k] {
    const auto [magnitudes, indices] = tensor.abs().topk(static_cast<std::int64_t>(k), 1);
    const at::Tensor values = tensor.gather(1, indices);
    if (values.numel() == 0) std::abort();  // keeps the result alive
  };
}

#ifdef SPARFUSE_CUDA
std::function<void()> TorchTopKOnCard(const float* x, std::size_t n, std::size_t k,
                                      const Stream& stream) {
  const auto index = static_cast<c10::DeviceIndex>(stream.device.index);
  const at::Tensor tensor =
      at::from_blob(const_cast<float*>(x), {static_cast<std::int64_t>(n)},
                    at::TensorOptions().device(at::kCUDA, index).dtype(at::kFloat));
  const c10::cuda::CUDAStream own =
      c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(stream.native), index);
  return [tensor, k, own] {
    const c10::cuda::CUDAStreamGuard guard(own);
    const auto [magnitudes, indices] = tensor.abs().topk(static_cast<std::int64_t>(k));
    const at::Tensor values = tensor.gather(0, indices);
    if (values.numel() == 0) std::abort();  // keeps the result alive
  };
}

void FreeTorchMemoryOnCard() { c10::cuda::CUDACachingAllocator::emptyCache(); }
#endif

}  // namespace sparfuse::bench
