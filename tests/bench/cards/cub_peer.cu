#include <cuda_runtime.h>

#include <cub/device/device_radix_sort.cuh>
#include <memory>
#include <numeric>
#if __has_include(<cub/device/device_topk.cuh>)
#define SPARFUSE_CUB_TOPK
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <cub/device/device_topk.cuh>
#endif

#include "core/device/device.hpp"
#include "core/device/runtime.hpp"
#include "core/device/status.hpp"
#include "tests/bench/cards/cub_peer.hpp"

namespace sparfuse::bench {
namespace {

constexpr int kMagnitudeBits = 31;  // all but the sign

void Check(cudaError_t status, const char* call) {
  gpu::CheckStatus(static_cast<int>(status), call, cudaGetErrorString(status));
}

const std::uint32_t* Bits(const float* x) { return reinterpret_cast<const std::uint32_t*>(x); }

// Memory of one selection. CUB says in a first call, without memory, how much it needs of its own.
struct Memory {
  Buffer<std::uint32_t> magnitudes;
  Buffer<std::uint32_t> indices;
  Buffer<std::uint8_t> own;
};

// `call(own, bytes, memory)` calls CUB, which writes `length` results into the memory.
std::function<CubSelection()> Prepared(std::size_t length, const Stream& stream, auto call) {
  const auto memory = std::make_shared<Memory>();
  memory->magnitudes = Buffer<std::uint32_t>(length, stream.device, "a rival's magnitudes");
  memory->indices = Buffer<std::uint32_t>(length, stream.device, "a rival's positions");
  std::size_t bytes = 0;
  Check(call(nullptr, bytes, *memory), "cub, the size of its memory");
  memory->own = Buffer<std::uint8_t>(bytes, stream.device, "a rival's own memory");
  return [memory, call, bytes]() mutable {
    Check(call(memory->own.data(), bytes, *memory), "cub");
    return CubSelection{memory->magnitudes.data(), memory->indices.data()};
  };
}

// Sorts all elements by magnitude, largest first. Their positions are made once, before the time.
std::function<CubSelection()> SortAll(const float* x, std::size_t n, std::size_t,
                                      const Stream& stream) {
  std::vector<std::uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0u);
  const auto positions =
      std::make_shared<Buffer<std::uint32_t>>(n, stream.device, "a rival's input");
  gpu::CopyAsync(stream, positions->data(), all.data(), n * sizeof(std::uint32_t));
  gpu::Synchronize(stream);
  const auto native = static_cast<cudaStream_t>(stream.native);
  return Prepared(n, stream, [=](void* own, std::size_t& bytes, const Memory& memory) {
    return cub::DeviceRadixSort::SortPairsDescending(
        own, bytes, Bits(x), memory.magnitudes.data(), positions->data(), memory.indices.data(),
        static_cast<std::int64_t>(n), 0, kMagnitudeBits, native);
  });
}

#ifdef SPARFUSE_CUB_TOPK
struct MagnitudeOf {
  __host__ __device__ std::uint32_t operator()(std::uint32_t bits) const {
    return bits & 0x7fffffffu;
  }
};

std::function<CubSelection()> TopK(const float* x, std::size_t n, std::size_t k,
                                   const Stream& stream) {
  const auto native = static_cast<cudaStream_t>(stream.native);
  return Prepared(k, stream, [=](void* own, std::size_t& bytes, const Memory& memory) {
    const auto any_order = cuda::execution::require(cuda::execution::determinism::not_guaranteed,
                                                    cuda::execution::output_ordering::unsorted);
    const auto environment = cuda::std::execution::env{cuda::stream_ref{native}, any_order};
    return cub::DeviceTopK::MaxPairs(
        own, bytes, thrust::make_transform_iterator(Bits(x), MagnitudeOf{}),
        memory.magnitudes.data(), thrust::counting_iterator<std::uint32_t>(0),
        memory.indices.data(), static_cast<std::int64_t>(n), static_cast<std::int64_t>(k),
        environment);
  });
}
#endif

}  // namespace

std::vector<CubRival> CubRivals() {
  std::vector<CubRival> rivals{{"cub::DeviceRadixSort", SortAll}};
#ifdef SPARFUSE_CUB_TOPK
  rivals.push_back({"cub::DeviceTopK", TopK});
#endif
  return rivals;
}

}  // namespace sparfuse::bench
