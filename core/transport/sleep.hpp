// Reads the monotonic clock that a host's processes share; sleeps on it, which others may end; asks
// the kernel to schedule threads that communicate before others.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace sparfuse {

// On a cluster a network card and spare cores move messages while processors compute. Where ranks
// fill every core of one machine, a thread that wakes to pass on a message would instead wait for a
// time slice of the computation, milliseconds where the link takes a tenth of one. Trials therefore
// let these threads, which sleep nearly always, run as soon as they wake.
enum class CommunicationPriority : std::uint8_t {
  kNormal,      // as any thread
  kShortSlice,  // asks the scheduler for short slices, hence early turns; needs Linux 6.12, no
                // right
  kRealTime     // SCHED_RR; needs root or CAP_SYS_NICE
};
std::string_view PriorityName(CommunicationPriority priority);

// From now on threads of this process that call RaiseThisThread get the best there is. Off until
// then, so that tests and libraries leave the scheduler alone.
void PreferCommunication();

// Call it on a thread that communicates or reacts. Returns what it got; never fails. Threads that
// it makes are as any: NCCL's, which poll, or those of lanes, which compute.
CommunicationPriority RaiseThisThread();

// What the calling thread has.
CommunicationPriority ThisThreadPriority();

// CLOCK_MONOTONIC in nanoseconds.
std::int64_t MonotonicNanoseconds();

// How long a thread sleeps between looks at what it cannot block on: 2 % of the time `waited` since
// something last began or ended, between 20 and 200 us, which bounds what a late look costs. 0, for
// about as long as some hundred kilobytes take between processes of a host: it yields instead (a
// real-time thread that yields only spins, and sleeps from the start).
std::int64_t PollingSleepNanoseconds(std::int64_t waited);

// Wakes one thread that waits for news, from any thread, and from any process that shares the
// memory it lies in. Zeroed memory is a doorbell that has not been rung.
class Doorbell {
 public:
  void Ring() noexcept;

  // For one thread alone. Returns at once when the bell was rung since the last Wait returned; else
  // at the next ring, or when MonotonicNanoseconds() >= `deadline`; a signal may end it early. Sets
  // the thread's timer slack to 1 ns, so that it oversleeps by the scheduler's latency alone.
  void Wait(std::int64_t deadline) noexcept;

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint32_t> seen_{0};  // of the rings; the waiting thread's
};

}  // namespace sparfuse
