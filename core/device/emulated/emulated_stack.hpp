// Switches between the stacks of emulated threads, and tells the sanitizers.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace sparfuse::gpu::internal {

// The thread sanitizer takes all fibres of a grid for the thread that runs them, which orders them
// as they are. It counts calls and returns of functions: those that a fibre leaves for good must
// not be counted. The callers that it reports of a kernel may be another fibre's. (A context of the
// sanitizer's for each fibre takes ten times as long.)
#if defined(__SANITIZE_THREAD__)
#define SPARFUSE_NOT_FOLLOWED __attribute__((no_sanitize_thread))
#else
#define SPARFUSE_NOT_FOLLOWED
#endif

// Memory of all stacks of a grid. A thread keeps what its last grid had.
class StackMemory {
 public:
  explicit StackMemory(std::size_t bytes) : memory_(std::move(Kept())) {
    if (memory_.bytes >= bytes) return;
    memory_.data.reset();
    memory_ = {std::unique_ptr<char[]>(new char[bytes]), bytes};  // untouched pages cost nothing
  }
  ~StackMemory() { Kept() = std::move(memory_); }
  StackMemory(const StackMemory&) = delete;
  StackMemory& operator=(const StackMemory&) = delete;
  char* data() const { return memory_.data.get(); }

 private:
  struct Memory {
    Memory() = default;
    Memory(std::unique_ptr<char[]> at, std::size_t size) : data(std::move(at)), bytes(size) {}
    Memory(Memory&& other) noexcept
        : data(std::move(other.data)), bytes(std::exchange(other.bytes, 0)) {}
    Memory& operator=(Memory&& other) noexcept {
      data = std::move(other.data);
      bytes = std::exchange(other.bytes, 0);
      return *this;
    }
    std::unique_ptr<char[]> data;
    std::size_t bytes = 0;
  };
  static Memory& Kept() {
    thread_local Memory kept;
    return kept;
  }
  Memory memory_;
};

// Without the system calls of swapcontext, which keeps a mask of signals for each context.
#if defined(__x86_64__) && defined(__GNUC__)
#define SPARFUSE_FAST_SWITCH
#endif

struct Stack {
  ucontext_t context;
#if defined(SPARFUSE_FAST_SWITCH)
  void* jump[5];  // __builtin_setjmp's
  bool started = true;
#endif
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake = nullptr;  // the address sanitizer's

  // For makecontext.
  void Prepare(char* at, std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
    // Frames of whoever had this stack before were left, not returned from.
    ASAN_UNPOISON_MEMORY_REGION(at, size);
#endif
    bottom = at;
    bytes = size;
#if defined(SPARFUSE_FAST_SWITCH)
    started = false;
#endif
    getcontext(&context);
    context.uc_stack.ss_sp = at;
    context.uc_stack.ss_size = size;
    context.uc_link = nullptr;
  }

  SPARFUSE_NOT_FOLLOWED static void Switch(Stack& from, Stack& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from.fake, to.bottom, to.bytes);
#endif
    Jump(from, to);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
  }
#if defined(SPARFUSE_FAST_SWITCH)
  SPARFUSE_NOT_FOLLOWED __attribute__((noinline)) static void Jump(Stack& from, Stack& to) {
    if (__builtin_setjmp(from.jump) != 0) return;
    if (to.started) __builtin_longjmp(to.jump, 1);
    to.started = true;
    setcontext(&to.context);
  }
#else
  static void Jump(Stack& from, Stack& to) { swapcontext(&from.context, &to.context); }
#endif
  // The first thing that is called on a stack that was switched to from `from`.
  static void Entered([[maybe_unused]] Stack& from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom, &from.bytes);
#endif
  }
};

}  // namespace sparfuse::gpu::internal
