// The monotonic clock that all processes of a host share, and sleeping on it to the microsecond.
#pragma once

#include <cstdint>

namespace sparfuse {

// CLOCK_MONOTONIC in nanoseconds.
std::int64_t MonotonicNanoseconds();

// Sleeps until MonotonicNanoseconds() >= `deadline`; a signal may end it early. Sets the calling
// thread's timer slack to 1 ns, so that it oversleeps by the scheduler's latency alone.
void SleepUntilNanoseconds(std::int64_t deadline);

}  // namespace sparfuse
