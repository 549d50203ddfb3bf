// Asks the kernel to schedule threads that communicate before others.
#pragma once

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

}  // namespace sparfuse
