#include "core/tensor/device.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#ifdef SPARFUSE_CUDA
#include "core/tensor/device_cuda.hpp"
#endif

namespace sparfuse {
namespace internal {
namespace {
constexpr std::size_t kAlignment = 64;

[[noreturn, maybe_unused]] void NoCuda() {
  SPARFUSE_THROW(kUnsupported, "memory on a CUDA device: this build has no CUDA (sparfuse doctor)");
}
}  // namespace

void* Allocate(std::size_t bytes, Device device) {
  if (bytes == 0) return nullptr;
  if (device.kind == DeviceKind::kCuda) {
#ifdef SPARFUSE_CUDA
    return cuda::Allocate(bytes, device.index);
#else
    NoCuda();
#endif
  }
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* pointer = std::aligned_alloc(kAlignment, rounded);
  if (pointer == nullptr) {
    SPARFUSE_THROW(kOutOfMemory, "cannot allocate " + std::to_string(bytes) + " bytes on the host");
  }
  return pointer;
}

void Free(void* pointer, Device device) noexcept {
  if (pointer == nullptr) return;
#ifdef SPARFUSE_CUDA
  if (device.kind == DeviceKind::kCuda) return cuda::Free(pointer, device.index);
#endif
  (void)device;
  std::free(pointer);
}

void FillZero(void* pointer, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  if (stream.device.kind == DeviceKind::kCuda) {
#ifdef SPARFUSE_CUDA
    return cuda::FillZero(pointer, bytes, stream);
#else
    NoCuda();
#endif
  }
  std::memset(pointer, 0, bytes);
}

}  // namespace internal

#ifndef SPARFUSE_CUDA
int CudaDeviceCount() noexcept { return 0; }
const char* CudaBuildInfo() noexcept { return ""; }
#endif

}  // namespace sparfuse
