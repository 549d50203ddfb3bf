// Starts kernels (kernel.hpp) on a stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/error.hpp"
#include "core/device/emulated/emulated_block.hpp"
#include "core/device/runtime.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {

// Defined by SPARFUSE_CUDA_KERNEL(Kernel) in a .cu file.
template <class Kernel>
void LaunchOnCuda(const Stream& stream, unsigned blocks, const Kernel& kernel,
                  const std::uint32_t* only_if);

// Runs `blocks` blocks of the kernel in stream order. Returns at once, but for errors of the
// launch.
//
//   only_if   a word on the device, or null: nothing runs where it is 0 when the stream gets there.
//             So what a fallback does is decided without the host.
template <class Kernel>
void Launch(const Stream& stream, std::size_t blocks, const Kernel& kernel,
            const std::uint32_t* only_if = nullptr) {
  if (blocks == 0) return;
  if (stream.device.kind == DeviceKind::kEmulated) {
    CheckStatus(InjectedStatus("launch"), Kernel::kName, "injected");
    internal::Enqueue(stream, [blocks = static_cast<unsigned>(blocks), kernel, only_if] {
      if (only_if != nullptr && *only_if == 0) return;
      RunGrid(blocks, Kernel::kThreads, sizeof(typename Kernel::Shared),
              [&kernel](EmulatedThread& thread, void* shared) {
                EmulatedBlock<Kernel::kThreads> block(thread);
                kernel(block, *static_cast<typename Kernel::Shared*>(shared));
              });
    });
    return;
  }
#ifdef SPARFUSE_CUDA
  CheckStatus(InjectedStatus("launch"), Kernel::kName, "injected");
  LaunchOnCuda(stream, static_cast<unsigned>(blocks), kernel, only_if);
#else
  SPARFUSE_THROW(kUnsupported,
                 std::string(Kernel::kName) + ": this build has no CUDA (sparfuse doctor)");
#endif
}

}  // namespace sparfuse::gpu

// For a kernel of a test that has no .cu file: there it runs on the emulated device alone. At
// namespace scope, before the kernel is launched.
#define SPARFUSE_EMULATED_KERNEL(...)                                                     \
  template <>                                                                             \
  [[maybe_unused]] inline void ::sparfuse::gpu::LaunchOnCuda<__VA_ARGS__>(                \
      const ::sparfuse::Stream&, unsigned, const __VA_ARGS__&, const std::uint32_t*) {    \
    SPARFUSE_THROW(kInternal, "a kernel that is compiled for the emulated device alone"); \
  }
