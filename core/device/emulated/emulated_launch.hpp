// Makes kernels runnable on the emulated device. The .cu files include it through
// compile_kernel.hpp, and tests with kernels of their own include it directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "core/device/emulated/runtime_emulated.hpp"
#include "core/device/kernel.hpp"
#include "core/device/launch.hpp"

namespace sparfuse::gpu {

// The emulation runs the threads of a grid on the host, each on a stack of its own, in an order
// that changes from launch to launch. It is for tests: a thread that waits at a barrier costs some
// 0.2 us.

namespace internal {
class GridScheduler;
}

// The view that one emulated thread has of its grid.
class EmulatedThread {
 public:
  unsigned thread = 0;
  unsigned block = 0;
  unsigned blocks = 0;

  // Waits until all threads of the block, or all lanes of the warp, have arrived.
  void SyncBlock();
  void SyncWarp();
  // Lets other threads, and other blocks, run.
  void Yield();

  // [threads] 8 bytes for each thread of the block, in two copies that alternate from call to call.
  std::uint64_t* Exchange(bool second) const { return exchange + (second ? threads : 0); }

  bool turn = false;
  unsigned threads = 0;
  std::uint64_t* exchange = nullptr;
  internal::GridScheduler* scheduler = nullptr;
  std::size_t fibre = 0;
};

// Calls body(thread, shared) for every thread of `blocks` blocks of `threads`. `shared` points to
// the block's shared_bytes bytes, which are filled with a pattern before the block starts. A few
// blocks run at the same time; they start in the order of their numbers.
//
// Throws Error{kInternal} if threads of a block or warp wait at a barrier after others of them have
// left the kernel, and if no thread can continue.
void RunGrid(unsigned blocks, unsigned threads, std::size_t shared_bytes,
             const std::function<void(EmulatedThread&, void*)>& body);

// Implements the block of kernel.hpp by emulated threads.

template <int Threads>
class EmulatedBlock {
 public:
  static constexpr int kThreads = Threads;
  static constexpr int kWarps = Threads / kWarp;
  static_assert(Threads % kWarp == 0 && Threads >= kWarp && Threads <= 1024);

  explicit EmulatedBlock(EmulatedThread& self) : self_(self) {}

  unsigned thread() const { return self_.thread; }
  unsigned lane() const { return self_.thread % kWarp; }
  unsigned warp() const { return self_.thread / kWarp; }
  unsigned block() const { return self_.block; }
  unsigned blocks() const { return self_.blocks; }

  void Sync() const { self_.SyncBlock(); }
  void SyncWarp() const { self_.SyncWarp(); }

  std::uint32_t Ballot(bool predicate) const {
    std::uint64_t* const values = ShareInWarp<std::uint64_t>(predicate);
    std::uint32_t mask = 0;
    for (unsigned i = 0; i < kWarp; ++i) mask |= static_cast<std::uint32_t>(values[i]) << i;
    return mask;
  }
  template <class T>
  T Shuffle(T value, unsigned lane) const {
    return At<T>(ShareInWarp(value), lane % kWarp);
  }
  template <class T>
  T ShuffleUp(T value, unsigned distance) const {
    std::uint64_t* const values = ShareInWarp(value);
    return lane() < distance ? value : At<T>(values, lane() - distance);
  }
  template <class T>
  T ShuffleXor(T value, unsigned mask) const {
    return At<T>(ShareInWarp(value), lane() ^ mask);
  }

  template <class T>
  T Sum(T value) const {
    return Reduce(value, [](T a, T b) { return a + b; });
  }
  template <class T>
  T Max(T value) const {
    return Reduce(value, [](T a, T b) { return a < b ? b : a; });
  }
  template <class T>
  T ExclusiveSum(T value, T* total) const {
    std::uint64_t* const values = ShareInBlock(value);
    T before{};
    T sum{};
    for (unsigned t = 0; t < kThreads; ++t) {
      if (t == thread()) before = sum;
      sum += At<T>(values, t);
    }
    *total = sum;
    self_.SyncBlock();
    return before;
  }

  template <class T>
  T AtomicAdd(T* at, T value) const {
    const T before = *at;
    *at = before + value;
    return before;
  }
  template <class T>
  T AtomicMax(T* at, T value) const {
    const T before = *at;
    if (before < value) *at = value;
    return before;
  }
  template <class T>
  T AtomicOr(T* at, T value) const {
    const T before = *at;
    *at = before | value;
    return before;
  }
  template <class T>
  T LoadAcquire(T* at) const {
    return *at;
  }
  template <class T>
  void StoreRelease(T* at, T value) const {
    *at = value;
  }
  template <class T>
  T LoadRelaxed(T* at) const {
    return *at;
  }
  template <class T>
  void StoreRelaxed(T* at, T value) const {
    *at = value;
  }
  template <class T>
  T LoadStreaming(const T* at) const {
    return *at;
  }
  void Pause() const { self_.Yield(); }

 private:
  template <class T>
  static T At(const std::uint64_t* values, unsigned i) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    T value;
    std::memcpy(&value, values + i, sizeof(T));
    return value;
  }
  // Two copies alternate: a thread may be one call ahead of a thread that still reads, but not two.
  template <class T>
  std::uint64_t* Share(T value) const {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    self_.turn = !self_.turn;
    std::uint64_t* const values = self_.Exchange(self_.turn);
    std::memcpy(values + thread(), &value, sizeof(T));
    return values;
  }
  std::uint64_t* ShareInWarp(auto value) const {
    std::uint64_t* const values = Share(value) + warp() * kWarp;
    self_.SyncWarp();
    return values;
  }
  std::uint64_t* ShareInBlock(auto value) const {
    self_.SyncBlock();  // lanes of a warp may be at another turn than those of the next
    self_.turn = false;
    std::uint64_t* const values = Share(value);
    self_.SyncBlock();
    return values;
  }
  // Adds in the same order as CudaBlock.
  template <class T, class Combine>
  T Reduce(T value, Combine combine) const {
    for (unsigned mask = kWarp / 2; mask > 0; mask /= 2) {
      value = combine(value, ShuffleXor(value, mask));
    }
    std::uint64_t* const values = ShareInBlock(value);
    T all = At<T>(values, 0);
    for (unsigned w = 1; w < kWarps; ++w) all = combine(all, At<T>(values, w * kWarp));
    self_.SyncBlock();
    return all;
  }

  EmulatedThread& self_;
};

template <class Kernel>
class EmulatedKernel {
 public:
  EmulatedKernel() { launch_on_emulated<Kernel> = &Run; }

 private:
  static void Run(const Stream& stream, unsigned blocks, const Kernel& kernel,
                  const std::uint32_t* only_if) {
    emulated::Enqueue(stream, [blocks, kernel, only_if] {
      if (only_if != nullptr && *only_if == 0) return;
      RunGrid(blocks, Kernel::kThreads, sizeof(SharedOf<Kernel>),
              [&kernel](EmulatedThread& thread, void* shared) {
                EmulatedBlock<Kernel::kThreads> block(thread);
                kernel(block, *static_cast<SharedOf<Kernel>*>(shared));
              });
    });
  }
};

}  // namespace sparfuse::gpu

// Makes a kernel runnable on the emulated device. Use it at namespace scope.
#define SPARFUSE_EMULATED_KERNEL(...) SPARFUSE_EMULATED_KERNEL_AT(__COUNTER__, __VA_ARGS__)
#define SPARFUSE_EMULATED_KERNEL_AT(number, ...) SPARFUSE_EMULATED_KERNEL_NAMED(number, __VA_ARGS__)
#define SPARFUSE_EMULATED_KERNEL_NAMED(number, ...)                            \
  namespace {                                                                  \
  const ::sparfuse::gpu::EmulatedKernel<__VA_ARGS__> emulated_kernel_##number; \
  }

// For a test's kernel without a .cu file, which CUDA cannot run. Must precede its first launch.
#define SPARFUSE_KERNEL_OF_A_TEST(...)                                                    \
  template <>                                                                             \
  [[maybe_unused]] inline void ::sparfuse::gpu::LaunchOnCuda<__VA_ARGS__>(                \
      const ::sparfuse::Stream&, unsigned, const __VA_ARGS__&, const std::uint32_t*) {    \
    SPARFUSE_THROW(kInternal, "a kernel that is compiled for the emulated device alone"); \
  }                                                                                       \
  SPARFUSE_EMULATED_KERNEL(__VA_ARGS__)
