#include "core/device/runtime.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "core/device/cuda/runtime_cuda.hpp"
#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {
namespace {

bool Emulated(Device device) { return device.kind == DeviceKind::kEmulated; }

emulated::Queue* QueueOf(const Stream& stream) {
  return static_cast<emulated::Queue*>(stream.native);
}

void NeedDevice(Device device) {
  if (device.kind == DeviceKind::kHost) {
    SPARFUSE_THROW(kInternal, "a stream, event or graph of the host: expected a device");
  }
}

}  // namespace

GpuStream::GpuStream(Device device, Priority priority) : stream_{device, nullptr} {
  NeedDevice(device);
  stream_.native =
      Emulated(device) ? new emulated::Queue() : cuda::MakeStream(device.index, priority);
}

GpuStream::~GpuStream() {
  if (stream_.native == nullptr) return;
  if (Emulated(stream_.device)) {
    delete QueueOf(stream_);
  } else {
    cuda::DestroyStream(stream_.native, stream_.device.index);
  }
}

void Synchronize(const Stream& stream) {
  if (!Emulated(stream.device)) return cuda::Synchronize(stream);
  CheckStatus(InjectedStatus("synchronize"), "Synchronize", "injected");
  if (stream.native != nullptr) QueueOf(stream)->Synchronize();
}

void Quiesce(const Stream& stream) noexcept {
  try {
    if (!Emulated(stream.device)) return cuda::Synchronize(stream);
    if (stream.native != nullptr) QueueOf(stream)->Synchronize();
  } catch (...) {
    // Nothing runs on the stream any more.
  }
}

struct GpuEvent::State {
  Device device;
  void* event = nullptr;                 // CUDA
  std::shared_ptr<emulated::Mark> mark;  // emulated: of the last record
  ~State() {
    if (event != nullptr) cuda::DestroyEvent(event, device.index);
  }
};

GpuEvent::GpuEvent(Device device) : state_(std::make_unique<State>()) {
  NeedDevice(device);
  state_->device = device;
  if (!Emulated(device)) state_->event = cuda::MakeEvent(device.index);
}
GpuEvent::GpuEvent(GpuEvent&&) noexcept = default;
GpuEvent& GpuEvent::operator=(GpuEvent&&) noexcept = default;
GpuEvent::~GpuEvent() = default;

void GpuEvent::Record(const Stream& stream) {
  if (state_->event != nullptr) return cuda::Record(state_->event, stream);
  state_->mark = std::make_shared<emulated::Mark>();
  if (stream.native == nullptr) return state_->mark->Reach();
  QueueOf(stream)->Add(state_->mark);
}

bool GpuEvent::Done() const {
  if (state_->event != nullptr) return cuda::Done(state_->event, state_->device.index);
  return state_->mark == nullptr || state_->mark->reached();
}

void GpuEvent::Wait() const {
  if (state_->event != nullptr) return cuda::Wait(state_->event, state_->device.index);
  CheckStatus(InjectedStatus("synchronize"), "Wait", "injected");
  if (state_->mark != nullptr) state_->mark->Wait();
}

double GpuEvent::SecondsSince(const GpuEvent& earlier) const {
  if (state_->event != nullptr) return cuda::SecondsBetween(earlier.state_->event, state_->event);
  return state_->mark->seconds() - earlier.state_->mark->seconds();
}

void StreamWait(const Stream& stream, const GpuEvent& event) {
  const GpuEvent::State& state = *event.state();
  if (state.event != nullptr) return cuda::StreamWait(stream, state.event);
  if (state.mark != nullptr) internal::Enqueue(stream, [mark = state.mark] { mark->Wait(); });
}

void CopyAsync(const Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (!Emulated(stream.device)) return cuda::Copy(stream, to, from, bytes);
  CheckStatus(InjectedStatus("copy"), "CopyAsync", "injected");
  internal::Enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}

void FillAsync(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes) {
  if (bytes == 0) return;
  if (!Emulated(stream.device)) return cuda::Fill(stream, at, byte, bytes);
  internal::Enqueue(stream, [=] { std::memset(at, byte, bytes); });
}

void SetReleaseCached(ReleaseCached release) noexcept { cuda::SetReleaseCached(release); }

DeviceMemory MemoryOf(Device device) {
  if (!Emulated(device)) return cuda::MemoryOf(device.index);
  return {std::numeric_limits<std::size_t>::max() - EmulatedMemoryInUse(),
          std::numeric_limits<std::size_t>::max()};
}

int MultiprocessorCount(Device device) {
  return Emulated(device) ? 2 : cuda::MultiprocessorCount(device.index);
}

struct GpuGraph::State {
  Device device;
  void* graph = nullptr;  // CUDA
  std::vector<std::function<void()>> recorded;
  ~State() {
    if (graph != nullptr) cuda::DestroyGraph(graph);
  }
};

GpuGraph::GpuGraph(const Stream& stream, const std::function<void()>& record)
    : state_(std::make_unique<State>()) {
  NeedDevice(stream.device);
  state_->device = stream.device;
  if (!Emulated(stream.device)) {
    cuda::BeginCapture(stream);
    try {
      record();
    } catch (...) {
      cuda::EndCapture(stream, true);
      throw;
    }
    state_->graph = cuda::EndCapture(stream, false);
    return;
  }
  if (stream.native == nullptr) SPARFUSE_THROW(kInternal, "a graph of the default stream");
  QueueOf(stream)->BeginRecording();
  try {
    record();
  } catch (...) {
    QueueOf(stream)->EndRecording();
    throw;
  }
  state_->recorded = QueueOf(stream)->EndRecording();
}
GpuGraph::GpuGraph(GpuGraph&&) noexcept = default;
GpuGraph& GpuGraph::operator=(GpuGraph&&) noexcept = default;
GpuGraph::~GpuGraph() = default;

void GpuGraph::Launch(const Stream& stream) const {
  if (state_->graph != nullptr) return cuda::LaunchGraph(state_->graph, stream);
  for (const auto& work : state_->recorded) internal::Enqueue(stream, work);
}

namespace internal {

void Enqueue(const Stream& stream, std::function<void()> work) {
  if (stream.native == nullptr) return work();
  QueueOf(stream)->Add(std::move(work));
}

void* AllocatePinned(std::size_t bytes, Device device, std::string_view what) {
  if (bytes == 0) return nullptr;
  NeedDevice(device);
  void* const pointer = Emulated(device) ? sparfuse::internal::Allocate(bytes, {}, what)
                                         : cuda::AllocatePinned(bytes, device.index, what);
  std::memset(pointer, 0, bytes);
  return pointer;
}

void FreePinned(void* pointer, Device device) noexcept {
  if (pointer == nullptr) return;
  if (Emulated(device)) {
    sparfuse::internal::Free(pointer, {});
  } else {
    cuda::FreePinned(pointer);
  }
}

}  // namespace internal
}  // namespace sparfuse::gpu
