#include "core/transport/sleep.hpp"

#include <sys/prctl.h>
#include <time.h>

namespace sparfuse {
namespace {
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
}

std::int64_t MonotonicNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}

void SleepUntilNanoseconds(std::int64_t deadline) {
  // The kernel's default slack of 50 us lets it merge wake-ups; it is a property of the thread.
  static thread_local const int slack_set = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  static_cast<void>(slack_set);
  const timespec until{deadline / kNanosecondsPerSecond, deadline % kNanosecondsPerSecond};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

}  // namespace sparfuse
