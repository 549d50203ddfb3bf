#include "core/device/runtime.hpp"

#include <atomic>
#include <cstring>

#include "core/device/backend.hpp"
#include "core/device/matrix_product.hpp"

namespace sparfuse::gpu {
namespace {

std::atomic<Backend*> emulated_backend = nullptr;

}  // namespace

void SetEmulatedBackend(Backend* backend) { emulated_backend = backend; }

bool HasEmulatedDevice() noexcept { return emulated_backend != nullptr; }

Backend& BackendOf(Device device) {
  switch (device.kind) {
    case DeviceKind::kCuda:
      return CudaBackend();
    case DeviceKind::kEmulated:
      if (Backend* const backend = emulated_backend) return *backend;
      SPARFUSE_THROW(kUnsupported, "the emulated device: only tests are linked with it");
    case DeviceKind::kHost:
      break;
  }
  SPARFUSE_THROW(kInternal, "a stream or event of the host: expected a device");
}

GpuStream::GpuStream(Device device, Priority priority)
    : stream_{device, BackendOf(device).MakeStream(device.index, priority)} {}

GpuStream::~GpuStream() {
  if (stream_.native == nullptr) return;
  BackendOf(stream_.device).DestroyStream(stream_.native, stream_.device.index);
}

void Synchronize(const Stream& stream) { BackendOf(stream.device).Synchronize(stream); }

void Quiesce(const Stream& stream) noexcept {
  if (stream.device.kind == DeviceKind::kHost) return;  // host work is synchronous
  BackendOf(stream.device).Quiesce(stream);
}

GpuEvent::GpuEvent(Device device)
    : device_(device), event_(BackendOf(device).MakeEvent(device.index)) {}

GpuEvent::~GpuEvent() {
  if (event_ != nullptr) BackendOf(device_).DestroyEvent(event_, device_.index);
}

void GpuEvent::Record(const Stream& stream) { BackendOf(device_).Record(event_, stream); }

bool GpuEvent::Done() const { return BackendOf(device_).Done(event_, device_.index); }

void GpuEvent::Wait() const { BackendOf(device_).Wait(event_, device_.index); }

double GpuEvent::SecondsSince(const GpuEvent& earlier) const {
  return BackendOf(device_).SecondsBetween(earlier.event_, event_);
}

void StreamWait(const Stream& stream, const GpuEvent& event) {
  BackendOf(stream.device).StreamWait(stream, event.event_);
}

void CopyAsync(const Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) BackendOf(stream.device).Copy(stream, to, from, bytes);
}

void FillAsync(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes) {
  if (bytes != 0) BackendOf(stream.device).Fill(stream, at, byte, bytes);
}

DeviceMemory MemoryOf(Device device) { return BackendOf(device).MemoryOf(device.index); }

int MultiprocessorCount(Device device) {
  return BackendOf(device).MultiprocessorCount(device.index);
}

namespace internal {

void* AllocatePinned(std::size_t bytes, Device device, std::string_view what) {
  if (bytes == 0) return nullptr;
  void* const pointer = BackendOf(device).AllocatePinned(bytes, device.index, what);
  std::memset(pointer, 0, bytes);
  return pointer;
}

void FreePinned(void* pointer, Device device) noexcept {
  if (pointer != nullptr) BackendOf(device).FreePinned(pointer);
}

}  // namespace internal

const GpuEvent& EventPool::Record(const Stream& stream) {
  GpuEvent* event = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (used_ == events_.size()) events_.emplace_back(device_);
    event = &events_[used_++];
  }
  event->Record(stream);
  return *event;
}

void EventPool::Reset() {
  std::lock_guard lock(mutex_);
  used_ = 0;
}

std::size_t EventPool::made() const {
  std::lock_guard lock(mutex_);
  return events_.size();
}

}  // namespace sparfuse::gpu

#ifndef SPARFUSE_CUDA  // refuses CUDA devices

namespace sparfuse::gpu {

Backend& CudaBackend() {
  SPARFUSE_THROW(kUnsupported, "a CUDA device: this build has no CUDA (sparfuse doctor)");
}

void SetReleaseCached(ReleaseCached) noexcept {}

}  // namespace sparfuse::gpu

namespace sparfuse {

int CudaDeviceCount() noexcept { return 0; }
const char* CudaBuildInfo() noexcept { return ""; }

std::unique_ptr<MatrixMultiplier> MakeMatrixMultiplier(Device device) {
  if (device.kind != DeviceKind::kCuda) {
    SPARFUSE_THROW(kInternal, "products of matrices: expected a CUDA device");
  }
  SPARFUSE_THROW(kUnsupported, "products of matrices on cuda:", device.index,
                 ": this build has no CUDA (sparfuse doctor)");
}

}  // namespace sparfuse

#endif
