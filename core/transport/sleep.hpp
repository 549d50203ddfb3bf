// Reads the monotonic clock that a host's processes share, and sleeps by it until a time or a
// wake-up. Asks the kernel to schedule communicating threads before others.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace sparfuse {

// On a cluster, a network card and spare cores move messages while processors compute. If ranks
// fill every core of one machine, a thread that wakes to pass on a message must wait for the
// computation's time slice. This wait takes milliseconds, while the link takes a tenth of one.
// Trials therefore let these threads, which sleep nearly always, run as soon as they wake.
enum class CommunicationPriority : std::uint8_t {
  kNormal,      // as any thread
  kShortSlice,  // asks the scheduler for short slices, hence early turns; needs Linux 6.12, no
                // right
  kRealTime     // SCHED_RR; needs root or CAP_SYS_NICE
};
std::string_view PriorityName(CommunicationPriority priority);

// From now on, threads of this process that call RaiseThisThread get the best available priority.
// Off until then, so that tests and libraries leave the scheduler alone.
void PreferCommunication();

// Raises the priority of the calling thread, which should communicate or react. Returns the
// resulting priority; never fails. Its child threads do not inherit the priority: NCCL's threads
// poll, and threads of lanes compute.
CommunicationPriority RaiseThisThread();

// The priority of the calling thread.
CommunicationPriority ThisThreadPriority();

// CLOCK_MONOTONIC in nanoseconds.
std::int64_t MonotonicNanoseconds();

// How long a thread sleeps between polls of an event that it cannot block on: 2 % of `waited`,
// between 20 and 200 us, which bounds the delay of a late poll. `waited` is the time since
// something last began or ended. At first the result is 0 and the thread yields instead, for about
// as long as some hundred kilobytes take between processes of a host. A real-time thread would only
// spin by yielding, so it sleeps from the start.
std::int64_t PollingSleepNanoseconds(std::int64_t waited);

// Wakes one waiting thread, from any thread and from any process that shares the doorbell's memory.
// Zeroed memory is a doorbell that has not been rung.
class Doorbell {
 public:
  void Ring() noexcept;

  // Only one thread may wait. Returns at once if the bell was rung since the last Wait returned;
  // else at the next ring, or when MonotonicNanoseconds() >= `deadline`. A signal may end the wait
  // early. Sets the thread's timer slack to 1 ns, so that it oversleeps by the scheduler's latency
  // alone.
  void Wait(std::int64_t deadline) noexcept;

 private:
  std::atomic<std::uint32_t> rings_{0};
  std::atomic<std::uint32_t> waiting_{0};
  std::atomic<std::uint32_t> seen_{0};  // rings that the waiting thread has seen
};

}  // namespace sparfuse
