#include "core/gpu/emulated_grid.hpp"

#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/gpu/kernel.hpp"
#include "core/sparsify/random_stream.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#include <sched.h>
#endif

namespace sparfuse::gpu {
namespace internal {

#if defined(__SANITIZE_THREAD__)
// The sanitizer follows a stack of its own for each fibre, and has room for 8128 of them and
// threads together: grids wait until there is room. Relaxed, so that their streams are not ordered
// by it.
class FibreRoom {
 public:
  explicit FibreRoom(std::size_t fibres) : fibres_(fibres) {
    while (used_.fetch_add(fibres_, std::memory_order_relaxed) + fibres_ > kMost) {
      used_.fetch_sub(fibres_, std::memory_order_relaxed);
      sched_yield();
    }
  }
  ~FibreRoom() { used_.fetch_sub(fibres_, std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kMost = 6144;
  static inline std::atomic<std::size_t> used_{0};
  std::size_t fibres_;
};
#endif

// Moves a thread from one stack to another, and tells the sanitizers.
struct Stack {
  ucontext_t context;
#if defined(__SANITIZE_THREAD__)
  void* fibre = nullptr;
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  void* fake = nullptr;
#endif
};

void Switch(Stack& from, Stack& to) {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.fibre, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake, to.bottom, to.bytes);
#endif
  swapcontext(&from.context, &to.context);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake, nullptr, nullptr);
#endif
}

// Blocks that run at a time take places; a place has the stacks, the shared memory and the exchange
// area of a block. One scheduler runs a grid on the thread that launches it.
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
#if defined(__SANITIZE_THREAD__)
        room_(places_.size() * threads),
#endif
        fibres_(places_.size() * threads),
        stacks_(fibres_.size() * kStackBytes) {
#if defined(__SANITIZE_THREAD__)
    main_.fibre = __tsan_get_current_fiber();
    for (Fibre& fibre : fibres_) fibre.stack.fibre = __tsan_create_fiber(0);
#endif
  }
#if defined(__SANITIZE_THREAD__)
  ~GridScheduler() {
    for (Fibre& fibre : fibres_) __tsan_destroy_fiber(fibre.stack.fibre);
  }
#endif

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
#if defined(__SANITIZE_THREAD__)
  static constexpr unsigned kPlaces = 1;  // a fibre takes the sanitizer long to make
#else
  static constexpr unsigned kPlaces = 3;
#endif
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
      char* const bottom = stacks_.data() + (first + t) * kStackBytes;
#if defined(__SANITIZE_ADDRESS__)
      // Frames of the thread that had this stack before were left, not returned from.
      ASAN_UNPOISON_MEMORY_REGION(bottom, kStackBytes);
      fibre.stack.bottom = bottom;
      fibre.stack.bytes = kStackBytes;
#endif
      ucontext_t& context = fibre.stack.context;
      getcontext(&context);
      context.uc_stack.ss_sp = bottom;
      context.uc_stack.ss_size = kStackBytes;
      context.uc_link = nullptr;
      const auto self = reinterpret_cast<std::uintptr_t>(&fibre);
      makecontext(&context, reinterpret_cast<void (*)()>(&Enter), 2,
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

  static void Enter(unsigned high, unsigned low) {
    auto* const fibre = reinterpret_cast<Fibre*>((static_cast<std::uintptr_t>(high) << 32) | low);
    GridScheduler& scheduler = *fibre->thread.scheduler;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler.main_.bottom, &scheduler.main_.bytes);
#endif
    Place& place = scheduler.PlaceOf(fibre->thread);
    try {
      scheduler.body_(fibre->thread, place.shared.data());
    } catch (...) {
      scheduler.error_ = std::current_exception();
    }
    ++place.left;
    scheduler.Leave(fibre->thread.fibre, State::kEnded);
  }

  void Resume(std::size_t fibre) { Switch(main_, fibres_[fibre].stack); }

  void Leave(std::size_t fibre, State state) {
    fibres_[fibre].state = state;
    Switch(fibres_[fibre].stack, main_);
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
#if defined(__SANITIZE_THREAD__)
  FibreRoom room_;
#endif
  std::vector<Fibre> fibres_;
  // Not a vector: pages that no thread reaches stay untouched.
  struct Stacks {
    explicit Stacks(std::size_t bytes) : memory(new char[bytes]) {}
    char* data() const { return memory.get(); }
    std::unique_ptr<char[]> memory;
  } stacks_;
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
