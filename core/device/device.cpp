#include "core/device/device.hpp"

#include <cstdlib>
#include <cstring>
#include <string>

#include "core/device/cuda/runtime_cuda.hpp"
#include "core/device/emulated/runtime_emulated.hpp"

namespace sparfuse::internal {
namespace {

constexpr std::size_t kAlignment = 64;

void* AllocateOnHost(std::size_t bytes, std::string_view what) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const pointer = std::aligned_alloc(kAlignment, rounded);
  if (pointer == nullptr) {
    std::string text = "cannot allocate " + std::to_string(bytes) + " bytes on the host";
    if (!what.empty()) text += " for " + std::string(what);
    SPARFUSE_THROW(kOutOfMemory, text);
  }
  return pointer;
}

}  // namespace

void* Allocate(std::size_t bytes, Device device, std::string_view what) {
  if (bytes == 0) return nullptr;
  switch (device.kind) {
    case DeviceKind::kCuda:
      return gpu::cuda::Allocate(bytes, device.index, what);
    case DeviceKind::kEmulated:
      return gpu::emulated::Allocate(bytes, what);
    case DeviceKind::kHost:
      break;
  }
  return AllocateOnHost(bytes, what);
}

void Free(void* pointer, Device device) noexcept {
  if (pointer == nullptr) return;
  switch (device.kind) {
    case DeviceKind::kCuda:
      return gpu::cuda::Free(pointer, device.index);
    case DeviceKind::kEmulated:
      return gpu::emulated::Free(pointer);
    case DeviceKind::kHost:
      break;
  }
  std::free(pointer);
}

void FillZero(void* pointer, std::size_t bytes, Device device) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::kCuda) {
    return gpu::cuda::FillZero(pointer, bytes, device.index);
  }
  std::memset(pointer, 0, bytes);
}

}  // namespace sparfuse::internal
