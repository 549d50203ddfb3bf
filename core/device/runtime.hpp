// Declares streams, events and copies of a device: of CUDA or, in tests alone, of the emulated
// device (emulated/runtime_emulated.hpp).
//
// A device call that fails throws the Error that status.hpp maps its status to. If work that a
// stream does later fails, a later call on that stream throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "core/device/device.hpp"

namespace sparfuse::gpu {

enum class Priority : std::uint8_t { kNormal, kHigh };

// An ordered queue of work. Streams are not ordered with one another.
class GpuStream {
 public:
  GpuStream() = default;
  explicit GpuStream(Device device, Priority priority = Priority::kNormal);
  GpuStream(GpuStream&& other) noexcept : stream_(std::exchange(other.stream_, {})) {}
  GpuStream& operator=(GpuStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~GpuStream();  // waits for its work

  const Stream& view() const noexcept { return stream_; }

 private:
  Stream stream_;
};

// Waits until all work given to the stream is done.
void Synchronize(const Stream& stream);

// Waits like Synchronize, but never throws. For clean-up while another error propagates.
void Quiesce(const Stream& stream) noexcept;

// Waits for a stream at the end of a scope. If declared after the memory that the stream uses, it
// keeps that memory from being freed too early, also when an error leaves the scope.
class QuietScope {
 public:
  explicit QuietScope(const Stream& stream) : stream_(stream) {}
  ~QuietScope() { Quiesce(stream_); }
  QuietScope(const QuietScope&) = delete;
  QuietScope& operator=(const QuietScope&) = delete;

 private:
  Stream stream_;
};

// A point in a stream's work. An event may be recorded again; an event never recorded is done.
class GpuEvent {
 public:
  GpuEvent() = default;
  explicit GpuEvent(Device device);
  GpuEvent(GpuEvent&& other) noexcept
      : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  GpuEvent& operator=(GpuEvent&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~GpuEvent();

  void Record(const Stream& stream);
  bool Done() const;
  void Wait() const;  // blocks the calling thread without spinning
  // The time between the last records of both events, which must be done. On CUDA the resolution is
  // about 0.5 us.
  double SecondsSince(const GpuEvent& earlier) const;

 private:
  friend void StreamWait(const Stream& stream, const GpuEvent& event);
  Device device_;
  void* event_ = nullptr;
};

// Work that `stream` is given from now on starts when the event's last record is done.
void StreamWait(const Stream& stream, const GpuEvent& event);

// Copies between host and device, or within a device. The copy is asynchronous only if the host
// memory is pinned.
void CopyAsync(const Stream& stream, void* to, const void* from, std::size_t bytes);
void FillAsync(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes);

namespace internal {
void* AllocatePinned(std::size_t bytes, Device device, std::string_view what);
void FreePinned(void* pointer, Device device) noexcept;
}  // namespace internal

// Host memory that a device copies from and to without waiting. Zero-initialised.
template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  // what: names the buffer in errors, e.g. "the counts of unit 3".
  PinnedBuffer(std::size_t size, Device device, std::string_view what)
      : data_(static_cast<T*>(internal::AllocatePinned(size * sizeof(T), device, what))),
        size_(size),
        device_(device) {}
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~PinnedBuffer() { internal::FreePinned(data_, device_); }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<T> span() const noexcept { return {data_, size_}; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
  }
  T* data_ = nullptr;
  std::size_t size_ = 0;
  Device device_;
};

// An allocation on a CUDA device that finds no room calls this function, then tries once more. The
// function frees memory that another library caches, as LibTorch's allocator does. Null: nothing.
using ReleaseCached = void (*)();
void SetReleaseCached(ReleaseCached release) noexcept;

struct DeviceMemory {
  std::size_t free = 0;
  std::size_t total = 0;
};
DeviceMemory MemoryOf(Device device);

int MultiprocessorCount(Device device);

// Reuses events from step to step. Any thread may record. A step creates events only if it records
// more than the steps before.
class EventPool {
 public:
  explicit EventPool(Device device) : device_(device) {}

  // Valid until Reset.
  const GpuEvent& Record(const Stream& stream);
  // Precondition: all recorded events are done, and nobody waits for them.
  void Reset();
  std::size_t made() const;

 private:
  Device device_;
  mutable std::mutex mutex_;
  std::deque<GpuEvent> events_;
  std::size_t used_ = 0;
};

}  // namespace sparfuse::gpu
