// Runs the threads of a grid on the host, each on a stack of its own, in an order that changes from
// launch to launch. For tests: it takes some 0.2 us for every thread that waits at a barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace sparfuse::gpu {

namespace internal {
class GridScheduler;
}

// What one emulated thread sees of its grid.
class EmulatedThread {
 public:
  unsigned thread = 0;
  unsigned block = 0;
  unsigned blocks = 0;

  // Until all threads of the block are here, or all lanes of the warp.
  void SyncBlock();
  void SyncWarp();
  // Lets other threads, and other blocks, run.
  void Yield();

  // 8 bytes a thread of the block, in two copies that calls take turns with: [threads].
  std::uint64_t* Exchange(bool second) const { return exchange + (second ? threads : 0); }

  bool turn = false;
  unsigned threads = 0;
  std::uint64_t* exchange = nullptr;
  internal::GridScheduler* scheduler = nullptr;
  std::size_t fibre = 0;
};

// Calls body(thread, shared) for every thread of `blocks` blocks of `threads`; `shared` points to
// shared_bytes bytes of a block, filled with a pattern before it starts. Some blocks run at a time,
// started in the order of their numbers.
//
// Throws Error{kInternal} where threads of a block or warp wait at a barrier that others have left
// the kernel without, and where no thread can go on.
void RunGrid(unsigned blocks, unsigned threads, std::size_t shared_bytes,
             const std::function<void(EmulatedThread&, void*)>& body);

}  // namespace sparfuse::gpu
