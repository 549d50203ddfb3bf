// Runs the threads of an emulated grid on the host, each on a stack of its own.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/random_stream.hpp"
#include "core/device/emulated/emulated_launch.hpp"
#include "core/device/emulated/emulated_stack.hpp"
#include "core/device/kernel.hpp"

namespace sparfuse::gpu {
namespace internal {

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
