#include "core/device/device.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "core/device/backend.hpp"

namespace sparfuse::internal {
namespace {

constexpr std::size_t kAlignment = 64;
// Passes over an array of ordinary pages wait for address translation: a residual of 100 MB has
// 25,000 pages. (NumPy and PyTorch request huge pages likewise.)
constexpr std::size_t kHugePage = std::size_t{2} << 20;

void* AllocateOnHost(std::size_t bytes, std::string_view what, bool huge_pages = true) {
  const std::size_t alignment = huge_pages && bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* pointer = nullptr;  // std::aligned_alloc would want a multiple of the alignment
  if (posix_memalign(&pointer, alignment, rounded) != 0) pointer = nullptr;
#if defined(MADV_HUGEPAGE)
  if (pointer != nullptr && alignment == kHugePage) {
    (void)madvise(pointer, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice only
  }
#endif
  if (pointer == nullptr) {
    SPARFUSE_THROW(kOutOfMemory, "cannot allocate ", bytes, " bytes on the host",
                   what.empty() ? "" : " for ", what);
  }
  return pointer;
}

}  // namespace

void* Allocate(std::size_t bytes, Device device, std::string_view what) {
  if (bytes == 0) return nullptr;
  if (device.kind == DeviceKind::kHost) return AllocateOnHost(bytes, what);
  return gpu::BackendOf(device).Allocate(bytes, device.index, what);
}

void* AllocateRoom(std::size_t bytes) {
  return bytes == 0 ? nullptr : AllocateOnHost(bytes, "", false);
}

void Free(void* pointer, Device device) noexcept {
  if (pointer == nullptr) return;
  if (device.kind == DeviceKind::kHost) return std::free(pointer);
  gpu::BackendOf(device).Free(pointer, device.index);
}

void FillZero(void* pointer, std::size_t bytes, Device device) {
  if (bytes == 0) return;
  if (device.kind == DeviceKind::kHost) {
    std::memset(pointer, 0, bytes);
  } else {
    gpu::BackendOf(device).FillZero(pointer, bytes, device.index);
  }
}

}  // namespace sparfuse::internal
