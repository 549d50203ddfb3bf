// What a build without CUDA says of CUDA devices.
#ifndef SPARFUSE_CUDA

#include "core/device/cuda/runtime_cuda.hpp"

namespace sparfuse::gpu::cuda {
namespace {

[[noreturn]] void Refuse() {
  SPARFUSE_THROW(kUnsupported, "a CUDA device: this build has no CUDA (sparfuse doctor)");
}

}  // namespace

void SetReleaseCached(ReleaseCached) noexcept {}
void* Allocate(std::size_t, int, std::string_view) { Refuse(); }
void Free(void*, int) noexcept {}
void FillZero(void*, std::size_t, int) { Refuse(); }
void* MakeStream(int, Priority) { Refuse(); }
void DestroyStream(void*, int) noexcept {}
void Synchronize(const Stream&) { Refuse(); }
void* MakeEvent(int) { Refuse(); }
void DestroyEvent(void*, int) noexcept {}
void Record(void*, const Stream&) { Refuse(); }
bool Done(void*, int) { Refuse(); }
void Wait(void*, int) { Refuse(); }
double SecondsBetween(void*, void*) { Refuse(); }
void StreamWait(const Stream&, void*) { Refuse(); }
void Copy(const Stream&, void*, const void*, std::size_t) { Refuse(); }
void Fill(const Stream&, void*, std::uint8_t, std::size_t) { Refuse(); }
void* AllocatePinned(std::size_t, int, std::string_view) { Refuse(); }
void FreePinned(void*) noexcept {}
DeviceMemory MemoryOf(int) { Refuse(); }
int MultiprocessorCount(int) { Refuse(); }
void BeginCapture(const Stream&) { Refuse(); }
void* EndCapture(const Stream&, bool) { Refuse(); }
void LaunchGraph(void*, const Stream&) { Refuse(); }
void DestroyGraph(void*) noexcept {}

}  // namespace sparfuse::gpu::cuda

namespace sparfuse {

int CudaDeviceCount() noexcept { return 0; }
const char* CudaBuildInfo() noexcept { return ""; }

}  // namespace sparfuse

#endif
