// Declares Device, Stream, DeviceSpan and Buffer, which say where memory lies and in which order
// work on it runs.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"

namespace sparfuse {

// kEmulated is for tests: a device whose kernels run on the host. No product is linked with it.
enum class DeviceKind : std::uint8_t { kHost, kCuda, kEmulated };

struct Device {
  DeviceKind kind = DeviceKind::kHost;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// An ordered queue of work on one device. On the host work is synchronous and `native` is null. On
// CUDA `native` is a cudaStream_t that the caller owns; on an emulated device it is null or an
// emulated::Queue.
struct Stream {
  Device device;
  void* native = nullptr;
  bool operator==(const Stream&) const = default;
};

// A non-owning array on a device. Code that reads or writes `data` does so in `stream` order.
template <class T>
struct DeviceSpan {
  T* data = nullptr;
  std::size_t size = 0;
  Stream stream;

  // The same elements as a host span. Precondition: the memory is on the host.
  std::span<T> host() const {
    assert(stream.device.kind == DeviceKind::kHost);
    return {data, size};
  }
};

namespace internal {
// 64-byte aligned, uninitialised. Throws Error{kOutOfMemory}; Error{kUnsupported} for a CUDA device
// in a build without CUDA. what: for errors.
void* Allocate(std::size_t bytes, Device device, std::string_view what);
void Free(void* pointer, Device device) noexcept;
void* AllocateRoom(std::size_t bytes);  // on the host, in pages of usual size
// Waits for its end.
void FillZero(void* pointer, std::size_t bytes, Device device);
}  // namespace internal

// Owning array of trivially copyable elements, 64-byte aligned, zero-initialised.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  // what: names the buffer in the error if the device has no room, e.g. "the residual local".
  explicit Buffer(std::size_t size, Device device = {}, std::string_view what = "")
      : data_(static_cast<T*>(internal::Allocate(size * sizeof(T), device, what))),
        size_(size),
        device_(device) {
    internal::FillZero(data_, size * sizeof(T), device);
  }
  // Host memory that is written before it is read. The system gives it as it is written, so that
  // unused room costs nothing.
  static Buffer Room(std::size_t size) {
    Buffer room;
    room.data_ = static_cast<T*>(internal::AllocateRoom(size * sizeof(T)));
    room.size_ = size;
    return room;
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() { internal::Free(data_, device_); }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  Device device() const noexcept { return device_; }
  DeviceSpan<T> view(Stream stream = {}) const { return {data_, size_, stream}; }
  // Precondition: host memory.
  std::span<T> host() const { return view(Stream{device_, nullptr}).host(); }
  T& operator[](std::size_t i) const { return host()[i]; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
  Device device_;
};

// Number of CUDA devices that this build can use; 0 in a build without CUDA or without a driver.
int CudaDeviceCount() noexcept;
// "" or, in a CUDA build, the versions of the CUDA runtime and NCCL it is linked with.
const char* CudaBuildInfo() noexcept;

}  // namespace sparfuse
