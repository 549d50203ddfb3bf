// Implements devices on the CUDA runtime.
#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <string>

#include "core/device/backend.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {
namespace {

void Check(cudaError_t status, const char* call, std::string_view what = "") {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the thread's next launch would report it as its own
  CheckStatus(status, call, cudaGetErrorString(status), what);
}
#define SPARFUSE_CUDA_CALL(call) Check((call), #call)

// Checks a call into which a fault may be injected.
void Check(std::string_view name, cudaError_t status, const char* call,
           std::string_view what = "") {
  const int injected = InjectedStatus(name);
  Check(injected == kSuccess ? status : static_cast<cudaError_t>(injected), call, what);
}

void Use(int device) { SPARFUSE_CUDA_CALL(cudaSetDevice(device)); }

std::string Room(std::size_t bytes, int device, std::string_view what) {
  std::size_t free = 0;
  std::size_t total = 0;
  const bool known = cudaMemGetInfo(&free, &total) == cudaSuccess;
  return Concat("cannot allocate ", bytes, " bytes of cuda:", device, what.empty() ? "" : " for ",
                what, known ? Concat(" (", free, " of ", total, " bytes are free)") : "");
}

std::atomic<ReleaseCached> release_cached = nullptr;

cudaStream_t Native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native); }
cudaEvent_t Native(void* event) { return static_cast<cudaEvent_t>(event); }

class CudaDevices final : public Backend {
 public:
  void* Allocate(std::size_t bytes, int device, std::string_view what) override {
    Use(device);
    void* pointer = nullptr;
    const int injected = InjectedStatus("allocate");
    auto status = static_cast<cudaError_t>(injected);
    if (injected == kSuccess) {
      status = cudaMalloc(&pointer, bytes);
      const ReleaseCached release = release_cached;
      if (status == cudaErrorMemoryAllocation && release != nullptr) {
        cudaGetLastError();
        release();
        status = cudaMalloc(&pointer, bytes);
      }
    }
    if (status != cudaSuccess) Check(status, "cudaMalloc", Room(bytes, device, what));
    return pointer;
  }

  void Free(void* pointer, int device) noexcept override {
    cudaSetDevice(device);
    cudaFree(pointer);
  }

  void FillZero(void* pointer, std::size_t bytes, int device) override {
    Use(device);
    SPARFUSE_CUDA_CALL(cudaMemset(pointer, 0, bytes));
    SPARFUSE_CUDA_CALL(cudaStreamSynchronize(nullptr));  // else it is not ordered with our streams
  }

  void* MakeStream(int device, Priority priority) override {
    Use(device);
    int least = 0;
    int greatest = 0;
    SPARFUSE_CUDA_CALL(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    cudaStream_t stream = nullptr;
    SPARFUSE_CUDA_CALL(cudaStreamCreateWithPriority(
        &stream, cudaStreamNonBlocking, priority == Priority::kHigh ? greatest : least));
    return stream;
  }

  void DestroyStream(void* stream, int device) noexcept override {
    cudaSetDevice(device);
    cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
    cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  }

  void Synchronize(const Stream& stream) override {
    Use(stream.device.index);
    Check("synchronize", cudaStreamSynchronize(Native(stream)), "cudaStreamSynchronize");
  }

  void Quiesce(const Stream& stream) noexcept override {
    cudaSetDevice(stream.device.index);
    cudaStreamSynchronize(Native(stream));
    cudaGetLastError();
  }

  void* MakeEvent(int device) override {
    Use(device);
    cudaEvent_t event = nullptr;
    SPARFUSE_CUDA_CALL(cudaEventCreateWithFlags(&event, cudaEventBlockingSync));
    return event;
  }

  void DestroyEvent(void* event, int device) noexcept override {
    cudaSetDevice(device);
    cudaEventDestroy(Native(event));
  }

  void Record(void* event, const Stream& stream) override {
    Use(stream.device.index);
    SPARFUSE_CUDA_CALL(cudaEventRecord(Native(event), Native(stream)));
  }

  bool Done(void* event, int device) override {
    Use(device);
    const cudaError_t status = cudaEventQuery(Native(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    Check(status, "cudaEventQuery");
    return true;
  }

  void Wait(void* event, int device) override {
    Use(device);
    Check("synchronize", cudaEventSynchronize(Native(event)), "cudaEventSynchronize");
  }

  double SecondsBetween(void* earlier, void* later) override {
    float milliseconds = 0;
    SPARFUSE_CUDA_CALL(cudaEventElapsedTime(&milliseconds, Native(earlier), Native(later)));
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void StreamWait(const Stream& stream, void* event) override {
    Use(stream.device.index);
    SPARFUSE_CUDA_CALL(cudaStreamWaitEvent(Native(stream), Native(event)));
  }

  void Copy(const Stream& stream, void* to, const void* from, std::size_t bytes) override {
    Use(stream.device.index);
    Check("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Native(stream)),
          "cudaMemcpyAsync");
  }

  void Fill(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes) override {
    Use(stream.device.index);
    SPARFUSE_CUDA_CALL(cudaMemsetAsync(at, byte, bytes, Native(stream)));
  }

  void* AllocatePinned(std::size_t bytes, int device, std::string_view what) override {
    Use(device);
    void* pointer = nullptr;
    const cudaError_t status = cudaHostAlloc(&pointer, bytes, cudaHostAllocPortable);
    if (status != cudaSuccess) {
      Check(status, "cudaHostAlloc",
            Concat("cannot pin ", bytes, " bytes of the host's memory for ", what));
    }
    return pointer;
  }

  void FreePinned(void* pointer) noexcept override { cudaFreeHost(pointer); }

  DeviceMemory MemoryOf(int device) override {
    Use(device);
    DeviceMemory memory;
    SPARFUSE_CUDA_CALL(cudaMemGetInfo(&memory.free, &memory.total));
    return memory;
  }

  int MultiprocessorCount(int device) override {
    int count = 0;
    SPARFUSE_CUDA_CALL(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
    return count;
  }
};

}  // namespace

Backend& CudaBackend() {
  static CudaDevices devices;
  return devices;
}

void SetReleaseCached(ReleaseCached release) noexcept { release_cached = release; }

}  // namespace sparfuse::gpu

namespace sparfuse {

int CudaDeviceCount() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

const char* CudaBuildInfo() noexcept {
  static const std::string info = [] {
    int runtime = 0;
    int nccl = 0;
    cudaRuntimeGetVersion(&runtime);
    ncclGetVersion(&nccl);
    return Concat("CUDA runtime ", runtime / 1000, ".", runtime % 1000 / 10, ", NCCL ",
                  nccl / 10000, ".", nccl / 100 % 100, ".", nccl % 100);
  }();
  return info.c_str();
}

}  // namespace sparfuse
