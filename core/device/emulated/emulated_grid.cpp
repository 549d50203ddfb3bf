// Runs the threads of an emulated grid on the host, each on a stack of its own.
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/device/emulated/emulated_launch.hpp"
#include "core/device/kernel.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace sparfuse::gpu {
namespace internal {

// The thread sanitizer takes all fibres of a grid for the thread that runs them, which orders them
// correctly. It counts calls and returns of functions, so functions that a fibre leaves for good
// must not be counted. The callers that it reports for a kernel may belong to another fibre. (One
// sanitizer context for each fibre takes ten times as long.)
#if defined(__SANITIZE_THREAD__)
#define SPARFUSE_NOT_FOLLOWED __attribute__((no_sanitize_thread))
#else
#define SPARFUSE_NOT_FOLLOWED
#endif

// Memory of all stacks of a grid. A thread keeps the memory of its last grid.
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

// Switches without the system calls of swapcontext, which keeps a signal mask for each context.
#if defined(__x86_64__) && defined(__GNUC__)
#define SPARFUSE_FAST_SWITCH
#endif

struct Stack {
  ucontext_t context;
#if defined(SPARFUSE_FAST_SWITCH)
  void* jump[5];  // of __builtin_setjmp
  bool started = true;
#endif
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake = nullptr;  // of the address sanitizer

  // Prepares the stack for makecontext.
  void Prepare(char* at, std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
    // Frames of the stack's last user were abandoned, not returned from.
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
  // Must be called first on a stack that was entered from `from`.
  static void Entered([[maybe_unused]] Stack& from) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom, &from.bytes);
#endif
  }
};

// Concurrent blocks occupy places; a place has the stacks, the shared memory and the exchange area
// of a block. One scheduler runs a grid on the launching thread.
class GridScheduler {
 public:
  using Body = std::function<void(EmulatedThread&, void*)>;

  GridScheduler(unsigned blocks, unsigned threads, std::size_t shared_bytes, const Body& body)
      : blocks_(blocks),
        threads_(threads),
        shared_bytes_(shared_bytes),
        body_(body),
        random_(0, launches_.fetch_add(1, std::memory_order_relaxed), 0),
        places_(std::min(blocks, kPlaces)),
        fibres_(places_.size() * threads),
        stacks_(fibres_.size() * kStackBytes) {}

  void Run() {
    for (Place& place : places_) StartBlock(place);
    std::vector<std::size_t> order(fibres_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    while (running_ > 0) {
      bool moved = false;
      Shuffle(order);
      for (const std::size_t fibre : order) {
        if (fibres_[fibre].state != State::kReady) continue;
        moved = true;
        Resume(fibre);
        if (error_) std::rethrow_exception(error_);
      }
      if (!moved) {
        SPARFUSE_THROW(kInternal,
                       "emulated kernel: threads wait at a barrier that others never reach");
      }
      for (Place& place : places_) {
        if (place.busy && place.left == threads_) EndBlock(place);
      }
    }
  }

  void SyncBlock(EmulatedThread& thread) {
    Place& place = PlaceOf(thread);
    if (++place.at_barrier == threads_) {
      place.at_barrier = 0;
      Release(thread.fibre - thread.thread, threads_, State::kAtBlockBarrier);
      return;
    }
    Leave(thread.fibre, State::kAtBlockBarrier);
  }

  void SyncWarp(EmulatedThread& thread) {
    const unsigned warp = thread.thread / kWarp;
    unsigned& at_barrier = PlaceOf(thread).at_warp_barrier[warp];
    if (++at_barrier == kWarp) {
      at_barrier = 0;
      Release(thread.fibre - thread.thread % kWarp, kWarp, State::kAtWarpBarrier);
      return;
    }
    Leave(thread.fibre, State::kAtWarpBarrier);
  }

  void Yield(EmulatedThread& thread) { Leave(thread.fibre, State::kReady); }

 private:
  static constexpr unsigned kPlaces = 3;
  static constexpr std::size_t kStackBytes = 64 << 10;

  enum class State : std::uint8_t { kIdle, kReady, kAtBlockBarrier, kAtWarpBarrier, kEnded };
  struct Fibre {
    Stack stack;
    State state = State::kIdle;
    EmulatedThread thread;
  };
  struct Place {
    bool busy = false;
    unsigned left = 0;  // threads that have ended
    unsigned at_barrier = 0;
    std::vector<unsigned> at_warp_barrier;
    std::vector<std::uint64_t> shared;
    std::vector<std::uint64_t> exchange;
  };

  Place& PlaceOf(const EmulatedThread& thread) { return places_[thread.fibre / threads_]; }

  void StartBlock(Place& place) {
    if (next_block_ == blocks_) return;
    place.busy = true;
    place.left = 0;
    place.at_warp_barrier.assign(threads_ / kWarp, 0);
    place.shared.assign((shared_bytes_ + 7) / 8 + 1, 0xa5a5a5a5a5a5a5a5u);
    place.exchange.assign(2 * static_cast<std::size_t>(threads_), 0);
    const std::size_t first = static_cast<std::size_t>(&place - places_.data()) * threads_;
    for (unsigned t = 0; t < threads_; ++t) {
      Fibre& fibre = fibres_[first + t];
      fibre.thread = {};
      fibre.thread.thread = t;
      fibre.thread.block = next_block_;
      fibre.thread.blocks = blocks_;
      fibre.thread.threads = threads_;
      fibre.thread.exchange = place.exchange.data();
      fibre.thread.scheduler = this;
      fibre.thread.fibre = first + t;
      const auto self = reinterpret_cast<std::uintptr_t>(&fibre);
      fibre.stack.Prepare(stacks_.data() + (first + t) * kStackBytes, kStackBytes);
      makecontext(&fibre.stack.context, reinterpret_cast<void (*)()>(&Enter), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
      fibre.state = State::kReady;
    }
    ++next_block_;
    ++running_;
  }

  void EndBlock(Place& place) {
    place.busy = false;
    --running_;
    StartBlock(place);
  }

  SPARFUSE_NOT_FOLLOWED static void Enter(unsigned high, unsigned low) {
    auto* const fibre = reinterpret_cast<Fibre*>((static_cast<std::uintptr_t>(high) << 32) | low);
    GridScheduler& scheduler = *fibre->thread.scheduler;
    Stack::Entered(scheduler.main_);
    Place& place = scheduler.PlaceOf(fibre->thread);
    try {
      scheduler.body_(fibre->thread, place.shared.data());
    } catch (...) {
      scheduler.error_ = std::current_exception();
    }
    ++place.left;
    scheduler.Leave(fibre->thread.fibre, State::kEnded);
  }

  void Resume(std::size_t fibre) { Stack::Switch(main_, fibres_[fibre].stack); }

  SPARFUSE_NOT_FOLLOWED void Leave(std::size_t fibre, State state) {
    fibres_[fibre].state = state;
    Stack::Switch(fibres_[fibre].stack, main_);
  }

  void Release(std::size_t first, unsigned count, State from) {
    for (std::size_t i = first; i < first + count; ++i) {
      if (fibres_[i].state == from) fibres_[i].state = State::kReady;
    }
  }

  void Shuffle(std::vector<std::size_t>& order) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[random_.Below(i, draws_++)]);
    }
  }

  static std::atomic<std::uint64_t> launches_;

  const unsigned blocks_;
  const unsigned threads_;
  const std::size_t shared_bytes_;
  const Body& body_;
  RandomStream random_;
  std::uint64_t draws_ = 0;
  unsigned next_block_ = 0;
  unsigned running_ = 0;
  std::exception_ptr error_;
  Stack main_;
  std::vector<Place> places_;
  std::vector<Fibre> fibres_;
  StackMemory stacks_;
};

std::atomic<std::uint64_t> GridScheduler::launches_{0};

}  // namespace internal

void EmulatedThread::SyncBlock() { scheduler->SyncBlock(*this); }
void EmulatedThread::SyncWarp() { scheduler->SyncWarp(*this); }
void EmulatedThread::Yield() { scheduler->Yield(*this); }

void RunGrid(unsigned blocks, unsigned threads, std::size_t shared_bytes,
             const std::function<void(EmulatedThread&, void*)>& body) {
  if (blocks == 0) return;
  internal::GridScheduler(blocks, threads, shared_bytes, body).Run();
}

}  // namespace sparfuse::gpu
