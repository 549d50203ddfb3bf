// Stacks of emulated threads: how a thread moves from one to another, and tells the sanitizers.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#include <sched.h>
#endif

namespace sparfuse::gpu::internal {

#if defined(__SANITIZE_THREAD__)

// Of functions that a fibre leaves without returning from them: it is used again, and would be
// followed ever deeper.
#define SPARFUSE_NOT_FOLLOWED __attribute__((no_sanitize_thread))
inline constexpr bool kFollowedOneByOne = true;

// What the thread sanitizer follows a fibre by. It has room for 8128 of them and threads together,
// so that grids wait for others to end; and takes long to make one, so that a thread keeps some.
// Not another thread's: what a fibre knows to have happened would order one stream after another.
class FollowedFibres {
 public:
  explicit FollowedFibres(std::size_t count) {
    while (used_.fetch_add(count, std::memory_order_relaxed) + count > kMost) {
      used_.fetch_sub(count, std::memory_order_relaxed);
      sched_yield();
    }
    std::vector<void*>& kept = OfThread().fibres;
    while (fibres_.size() < count) {
      if (kept.empty()) {
        fibres_.push_back(__tsan_create_fiber(0));
      } else {
        fibres_.push_back(kept.back());
        kept.pop_back();
        kept_.fetch_sub(1, std::memory_order_relaxed);
      }
    }
  }
  ~FollowedFibres() {
    for (void* const fibre : fibres_) {
      if (kept_.fetch_add(1, std::memory_order_relaxed) < kMost) {
        OfThread().fibres.push_back(fibre);
      } else {
        kept_.fetch_sub(1, std::memory_order_relaxed);
        __tsan_destroy_fiber(fibre);
      }
    }
    used_.fetch_sub(fibres_.size(), std::memory_order_relaxed);
  }
  FollowedFibres(const FollowedFibres&) = delete;
  FollowedFibres& operator=(const FollowedFibres&) = delete;
  void* operator[](std::size_t i) const { return fibres_[i]; }

 private:
  static constexpr std::size_t kMost = 3584;
  struct Kept {
    std::vector<void*> fibres;
    ~Kept() {
      for (void* const fibre : fibres) __tsan_destroy_fiber(fibre);
      kept_.fetch_sub(fibres.size(), std::memory_order_relaxed);
    }
  };
  static Kept& OfThread() {
    thread_local Kept kept;
    return kept;
  }
  static inline std::atomic<std::size_t> used_{0};
  static inline std::atomic<std::size_t> kept_{0};
  std::vector<void*> fibres_;
};

#else

#define SPARFUSE_NOT_FOLLOWED
inline constexpr bool kFollowedOneByOne = false;

class FollowedFibres {
 public:
  explicit FollowedFibres(std::size_t) {}
  void* operator[](std::size_t) const { return nullptr; }
};

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
  void* fibre = nullptr;  // followed by the thread sanitizer
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake = nullptr;  // the address sanitizer's

  // Of the thread that calls.
  void TakeCurrent() {
#if defined(__SANITIZE_THREAD__)
    fibre = __tsan_get_current_fiber();
#endif
  }
  void Take(void* followed) { fibre = followed; }

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
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.fibre, 0);
#endif
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
