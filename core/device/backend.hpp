// Declares the interface that a kind of device implements behind device.hpp and runtime.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/device/device.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse::gpu {

// The calls of one kind of device, with handles as void*. Callers pass no size of 0, no null
// handle, and only Streams on a device of this kind; `native` may be null, the default stream.
class Backend {
 public:
  virtual void* Allocate(std::size_t bytes, int device, std::string_view what) = 0;
  virtual void Free(void* pointer, int device) noexcept = 0;
  virtual void FillZero(void* pointer, std::size_t bytes, int device) = 0;  // waits until done
  virtual void* AllocatePinned(std::size_t bytes, int device, std::string_view what) = 0;
  virtual void FreePinned(void* pointer) noexcept = 0;

  virtual void* MakeStream(int device, Priority priority) = 0;
  virtual void DestroyStream(void* stream, int device) noexcept = 0;
  virtual void Synchronize(const Stream& stream) = 0;
  virtual void Quiesce(const Stream& stream) noexcept = 0;

  virtual void* MakeEvent(int device) = 0;
  virtual void DestroyEvent(void* event, int device) noexcept = 0;
  virtual void Record(void* event, const Stream& stream) = 0;
  virtual bool Done(void* event, int device) = 0;
  virtual void Wait(void* event, int device) = 0;
  virtual double SecondsBetween(void* earlier, void* later) = 0;
  virtual void StreamWait(const Stream& stream, void* event) = 0;

  virtual void Copy(const Stream& stream, void* to, const void* from, std::size_t bytes) = 0;
  virtual void Fill(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes) = 0;

  virtual DeviceMemory MemoryOf(int device) = 0;
  virtual int MultiprocessorCount(int device) = 0;

 protected:
  ~Backend() = default;
};

// Throws Error{kUnsupported} if this program has no such device, Error{kInternal} for the host.
Backend& BackendOf(Device device);

// cuda/runtime_cuda.cpp; a build without CUDA throws Error{kUnsupported}.
Backend& CudaBackend();

// Registers the backend of DeviceKind::kEmulated. The library of the emulated device calls it; only
// tests are linked with that library.
void SetEmulatedBackend(Backend* backend);
bool HasEmulatedDevice() noexcept;

}  // namespace sparfuse::gpu
