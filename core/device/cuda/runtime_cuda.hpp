// The CUDA calls behind runtime.hpp and device.hpp, with handles as void*: runtime_cuda.cpp makes
// them, runtime_refused.cpp refuses them. Only device.cpp and runtime.cpp include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/device/device.hpp"
#include "core/device/runtime.hpp"

namespace sparfuse::gpu::cuda {

void SetReleaseCached(ReleaseCached release) noexcept;
void* Allocate(std::size_t bytes, int device, std::string_view what);
void Free(void* pointer, int device) noexcept;
// Waits for its end.
void FillZero(void* pointer, std::size_t bytes, int device);

void* MakeStream(int device, Priority priority);
void DestroyStream(void* stream, int device) noexcept;
void Synchronize(const Stream& stream);

void* MakeEvent(int device);
void DestroyEvent(void* event, int device) noexcept;
void Record(void* event, const Stream& stream);
bool Done(void* event, int device);
void Wait(void* event, int device);
double SecondsBetween(void* earlier, void* later);
void StreamWait(const Stream& stream, void* event);

void Copy(const Stream& stream, void* to, const void* from, std::size_t bytes);
void Fill(const Stream& stream, void* at, std::uint8_t byte, std::size_t bytes);

void* AllocatePinned(std::size_t bytes, int device, std::string_view what);
void FreePinned(void* pointer) noexcept;
DeviceMemory MemoryOf(int device);
int MultiprocessorCount(int device);

void BeginCapture(const Stream& stream);
// The graph, made ready to launch; null where `give_up`.
void* EndCapture(const Stream& stream, bool give_up);
void LaunchGraph(void* graph, const Stream& stream);
void DestroyGraph(void* graph) noexcept;

}  // namespace sparfuse::gpu::cuda
