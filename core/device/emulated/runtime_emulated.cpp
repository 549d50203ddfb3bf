// Implements the emulated device and registers it.
#include "core/device/emulated/runtime_emulated.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/device/backend.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {
namespace emulated {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc's

struct Memory {
  std::mutex mutex;
  std::size_t total = std::numeric_limits<std::size_t>::max();
  std::size_t used = 0;
  std::size_t allocations = 0;
  std::map<void*, std::size_t> sizes;
};
Memory& TheMemory() {
  static Memory memory;
  return memory;
}

}  // namespace

Queue::Queue() : thread_([this] { Run(); }) {}

Queue::~Queue() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Queue::Add(std::function<void()> work) { AddWork({std::move(work), nullptr}); }

void Queue::Add(std::shared_ptr<Mark> mark) { AddWork({{}, std::move(mark)}); }

void Queue::AddWork(Work work) {
  {
    std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    if (recording_) {
      if (work.mark) work.run = [mark = work.mark] { mark->Reach(); };
      recorded_.push_back(std::move(work.run));
      return;
    }
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Queue::Synchronize() {
  std::unique_lock lock(mutex_);
  if (recording_) SPARFUSE_THROW(kInternal, "a stream that records a graph cannot be waited for");
  changed_.wait(lock, [this] { return error_ || (work_.empty() && !busy_); });
  if (error_) std::rethrow_exception(error_);
}

void Queue::BeginRecording() {
  std::lock_guard lock(mutex_);
  recording_ = true;
}

std::vector<std::function<void()>> Queue::EndRecording() {
  std::lock_guard lock(mutex_);
  recording_ = false;
  return std::exchange(recorded_, {});
}

void Queue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (work_.empty()) return;
    const Work work = std::move(work_.front());
    work_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      work.mark ? work.mark->Reach() : work.run();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (error) {
      error_ = error;
      for (const Work& dropped : std::exchange(work_, {})) {
        if (dropped.mark) dropped.mark->Fail(error);
      }
    }
    changed_.notify_all();
  }
}

void Mark::Reach() {
  {
    std::lock_guard lock(mutex_);
    reached_ = true;
    seconds_ =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  changed_.notify_all();
}

void Mark::Fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  changed_.notify_all();
}

bool Mark::reached() const {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  return reached_;
}

void Mark::Wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_ || error_; });
  if (error_) std::rethrow_exception(error_);
}

double Mark::seconds() const {
  std::lock_guard lock(mutex_);
  return seconds_;
}

void Enqueue(const Stream& stream, std::function<void()> work) {
  if (stream.native == nullptr) return work();
  static_cast<Queue*>(stream.native)->Add(std::move(work));
}

namespace {

// An event's handle points to the mark of its last record; null: never recorded.
using Event = std::shared_ptr<Mark>;

Event& EventOf(void* event) { return *static_cast<Event*>(event); }

class EmulatedDevices final : public Backend {
 public:
  void* Allocate(std::size_t bytes, int, std::string_view what) override {
    Memory& memory = TheMemory();
    std::lock_guard lock(memory.mutex);
    int status = InjectedStatus("allocate");
    if (status == kSuccess && bytes > memory.total - std::min(memory.used, memory.total)) {
      status = kOutOfMemoryStatus;
    }
    if (status != kSuccess) {
      CheckStatus(status, "Allocate", "out of memory",
                  Concat("cannot allocate ", bytes, " bytes of the emulated device",
                         what.empty() ? "" : " for ", what));
    }
    void* const pointer =
        std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    if (pointer == nullptr) {
      SPARFUSE_THROW(kOutOfMemory, "cannot allocate ", bytes, " bytes on the host");
    }
    memory.used += bytes;
    ++memory.allocations;
    memory.sizes[pointer] = bytes;
    return pointer;
  }

  void Free(void* pointer, int) noexcept override {
    Memory& memory = TheMemory();
    {
      std::lock_guard lock(memory.mutex);
      const auto it = memory.sizes.find(pointer);
      memory.used -= it->second;
      memory.sizes.erase(it);
    }
    std::free(pointer);
  }

  void FillZero(void* pointer, std::size_t bytes, int) override { std::memset(pointer, 0, bytes); }

  void* AllocatePinned(std::size_t bytes, int, std::string_view what) override {
    return sparfuse::internal::Allocate(bytes, {}, what);
  }
  void FreePinned(void* pointer) noexcept override { sparfuse::internal::Free(pointer, {}); }

  void* MakeStream(int, Priority) override { return new Queue(); }
  void DestroyStream(void* stream, int) noexcept override { delete static_cast<Queue*>(stream); }
  void Synchronize(const Stream& stream) override {
    CheckStatus(InjectedStatus("synchronize"), "Synchronize", "injected");
    if (stream.native != nullptr) static_cast<Queue*>(stream.native)->Synchronize();
  }
  void Quiesce(const Stream& stream) noexcept override {
    try {
      if (stream.native != nullptr) static_cast<Queue*>(stream.native)->Synchronize();
    } catch (...) {
      // No work runs on the stream any more.
    }
  }

  void* MakeEvent(int) override { return new Event(); }
  void DestroyEvent(void* event, int) noexcept override { delete static_cast<Event*>(event); }
  void Record(void* event, const Stream& stream) override {
    EventOf(event) = std::make_shared<Mark>();
    if (stream.native == nullptr) return EventOf(event)->Reach();
    static_cast<Queue*>(stream.native)->Add(EventOf(event));
  }
  bool Done(void* event, int) override {
    return EventOf(event) == nullptr || EventOf(event)->reached();
  }
  void Wait(void* event, int) override {
    CheckStatus(InjectedStatus("synchronize"), "Wait", "injected");
    if (EventOf(event) != nullptr) EventOf(event)->Wait();
  }
  double SecondsBetween(void* earlier, void* later) override {
    return EventOf(later)->seconds() - EventOf(earlier)->seconds();
  }
  void StreamWait(const Stream& stream, void* event) override {
    if (EventOf(event) != nullptr) Enqueue(stream, [mark = EventOf(event)] { mark->Wait(); });
  }

  void Copy(const Stream& stream, void* to, const void* from, std::size_t bytes) override {
    CheckStatus(InjectedStatus("copy"), "CopyAsync", "injected");
    Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  }
  void Fill(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes) override {
    Enqueue(stream, [=] { std::memset(at, byte, bytes); });
  }

  DeviceMemory MemoryOf(int) override {
    return {std::numeric_limits<std::size_t>::max() - EmulatedMemoryInUse(),
            std::numeric_limits<std::size_t>::max()};
  }
  int MultiprocessorCount(int) override { return 2; }
};

EmulatedDevices the_devices;
[[maybe_unused]] const bool registered = (SetEmulatedBackend(&the_devices), true);

}  // namespace
}  // namespace emulated

void SetEmulatedMemory(std::size_t bytes) {
  auto& memory = emulated::TheMemory();
  std::lock_guard lock(memory.mutex);
  memory.total = bytes;
}

std::size_t EmulatedMemoryInUse() {
  auto& memory = emulated::TheMemory();
  std::lock_guard lock(memory.mutex);
  return memory.used;
}

std::size_t EmulatedAllocations() {
  auto& memory = emulated::TheMemory();
  std::lock_guard lock(memory.mutex);
  return memory.allocations;
}

}  // namespace sparfuse::gpu
