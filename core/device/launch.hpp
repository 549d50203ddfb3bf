// Starts kernels (kernel.hpp) on a stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/error.hpp"
#include "core/device/device.hpp"
#include "core/device/kernel.hpp"
#include "core/device/status.hpp"

namespace sparfuse::gpu {

// Defined by SPARFUSE_KERNEL(Kernel) in a .cu file (compile_kernel.hpp).
template <class Kernel>
void LaunchOnCuda(const Stream& stream, unsigned blocks, const Kernel& kernel,
                  const std::uint32_t* only_if);

// The function that runs the kernel on the emulated device. The same .cu file sets it when compiled
// for that device, which tests alone are linked with.
template <class Kernel>
using LaunchOnEmulated = void (*)(const Stream& stream, unsigned blocks, const Kernel& kernel,
                                  const std::uint32_t* only_if);
template <class Kernel>
inline LaunchOnEmulated<Kernel> launch_on_emulated = nullptr;

// Runs `blocks` blocks of the kernel in stream order. Returns at once. Throws the errors of the
// launch.
//
//   only_if   a word on the device, or null. If it is 0 when the stream reaches the launch, nothing
//             runs. So the device decides about a fallback without the host.
template <class Kernel>
void Launch(const Stream& stream, std::size_t blocks, const Kernel& kernel,
            const std::uint32_t* only_if = nullptr) {
  if (blocks == 0) return;
  if (stream.device.kind == DeviceKind::kEmulated) {
    if (launch_on_emulated<Kernel> == nullptr) {
      SPARFUSE_THROW(kInternal, NameOf<Kernel>(), " has no emulated kernel");
    }
    CheckStatus(InjectedStatus("launch"), NameOf<Kernel>(), "injected");
    launch_on_emulated<Kernel>(stream, static_cast<unsigned>(blocks), kernel, only_if);
    return;
  }
#ifdef SPARFUSE_CUDA
  CheckStatus(InjectedStatus("launch"), NameOf<Kernel>(), "injected");
  LaunchOnCuda(stream, static_cast<unsigned>(blocks), kernel, only_if);
#else
  SPARFUSE_THROW(kUnsupported, NameOf<Kernel>(), ": this build has no CUDA (sparfuse doctor)");
#endif
}

}  // namespace sparfuse::gpu
