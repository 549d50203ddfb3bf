#include "tests/bench/torch_peer.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace sparfuse::bench {

std::function<void()> TorchTopK(const float* x, std::size_t rows, std::size_t length, std::size_t k,
                                int threads) {
  at::set_num_threads(threads);
  // from_blob takes memory that may be written; topk and gather only read it.
  const at::Tensor tensor = at::from_blob(
      const_cast<float*>(x), {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(length)});
  return [tensor, k] {
    const auto [magnitudes, indices] = tensor.abs().topk(static_cast<std::int64_t>(k), 1);
    const at::Tensor values = tensor.gather(1, indices);
    if (values.numel() == 0) std::abort();  // keeps the result alive
  };
}

}  // namespace sparfuse::bench
