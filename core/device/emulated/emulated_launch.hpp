// Makes kernels runnable on the emulated device. Included by .cu files through compile_kernel.hpp,
// and by tests with kernels of their own.
#pragma once

#include <cstdint>

#include "core/device/emulated/emulated_block.hpp"
#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/launch.hpp"

namespace sparfuse::gpu {

template <class Kernel>
class EmulatedKernel {
 public:
  EmulatedKernel() { launch_on_emulated<Kernel> = &Run; }

 private:
  static void Run(const Stream& stream, unsigned blocks, const Kernel& kernel,
                  const std::uint32_t* only_if) {
    emulated::Enqueue(stream, [blocks, kernel, only_if] {
      if (only_if != nullptr && *only_if == 0) return;
      RunGrid(blocks, Kernel::kThreads, sizeof(typename Kernel::Shared),
              [&kernel](EmulatedThread& thread, void* shared) {
                EmulatedBlock<Kernel::kThreads> block(thread);
                kernel(block, *static_cast<typename Kernel::Shared*>(shared));
              });
    });
  }
};

}  // namespace sparfuse::gpu

// At namespace scope.
#define SPARFUSE_EMULATED_KERNEL(...) SPARFUSE_EMULATED_KERNEL_AT(__COUNTER__, __VA_ARGS__)
#define SPARFUSE_EMULATED_KERNEL_AT(number, ...) SPARFUSE_EMULATED_KERNEL_NAMED(number, __VA_ARGS__)
#define SPARFUSE_EMULATED_KERNEL_NAMED(number, ...)                            \
  namespace {                                                                  \
  const ::sparfuse::gpu::EmulatedKernel<__VA_ARGS__> emulated_kernel_##number; \
  }

// For a kernel of a test that has no .cu file: there is none for CUDA. Before it is launched.
#define SPARFUSE_KERNEL_OF_A_TEST(...)                                                    \
  template <>                                                                             \
  [[maybe_unused]] inline void ::sparfuse::gpu::LaunchOnCuda<__VA_ARGS__>(                \
      const ::sparfuse::Stream&, unsigned, const __VA_ARGS__&, const std::uint32_t*) {    \
    SPARFUSE_THROW(kInternal, "a kernel that is compiled for the emulated device alone"); \
  }                                                                                       \
  SPARFUSE_EMULATED_KERNEL(__VA_ARGS__)
