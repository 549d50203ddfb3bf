#include "core/transport/sleep.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace sparfuse {

namespace {

std::atomic<bool> preferred = false;
thread_local CommunicationPriority own_priority = CommunicationPriority::kNormal;

// struct sched_attr of sched_setattr(2); <linux/sched/types.h> redefines parts of <sched.h>.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 1;  // SCHED_FLAG_RESET_ON_FORK
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_nanoseconds = 0;  // of SCHED_OTHER: the slice
  std::uint64_t deadline_nanoseconds = 0;
  std::uint64_t period_nanoseconds = 0;
};

constexpr std::uint64_t kSliceNanoseconds = 100'000;  // the shortest that the kernel grants

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;
constexpr std::int64_t kYieldNanoseconds = 100'000;
constexpr std::int64_t kShortestSleepNanoseconds = 20'000;
constexpr std::int64_t kLongestSleepNanoseconds = 200'000;

// The operations without FUTEX_PRIVATE_FLAG work across processes.
void Futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* deadline) noexcept {
  static_assert(sizeof(word) == sizeof(std::uint32_t) &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  syscall(SYS_futex, &word, operation, value, deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

std::string_view PriorityName(CommunicationPriority priority) {
  static constexpr std::string_view kNames[] = {"normal", "short slices", "real time"};
  return kNames[static_cast<std::size_t>(priority)];
}

void PreferCommunication() { preferred = true; }

CommunicationPriority RaiseThisThread() {
  if (!preferred) return own_priority;
  sched_param round_robin{};
  round_robin.sched_priority = 1;
  if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &round_robin) == 0) {
    return own_priority = CommunicationPriority::kRealTime;
  }
  SchedulingAttributes slice;
  slice.runtime_nanoseconds = kSliceNanoseconds;
  if (syscall(SYS_sched_setattr, 0, &slice, 0) == 0)
    own_priority = CommunicationPriority::kShortSlice;
  return own_priority;
}

CommunicationPriority ThisThreadPriority() { return own_priority; }

std::int64_t MonotonicNanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}

std::int64_t PollingSleepNanoseconds(std::int64_t waited) {
  if (waited < kYieldNanoseconds && ThisThreadPriority() != CommunicationPriority::kRealTime) {
    return 0;
  }
  return std::clamp(waited / 50, kShortestSleepNanoseconds, kLongestSleepNanoseconds);
}

void Doorbell::Ring() noexcept {
  rings_.fetch_add(1);
  if (waiting_.load() != 0) Futex(rings_, FUTEX_WAKE, 1, nullptr);
}

void Doorbell::Wait(std::int64_t deadline) noexcept {
  // Sets no slack: the kernel's default of 50 us lets it merge wake-ups. It is per thread.
  static thread_local const int slack_set = prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  static_cast<void>(slack_set);
  const std::uint32_t seen = seen_.load();
  waiting_.store(1);
  // A ring from here on finds `waiting_` set. An earlier ring has changed `rings_`, so no wait.
  if (rings_.load() == seen) {
    const timespec until{deadline / kNanosecondsPerSecond, deadline % kNanosecondsPerSecond};
    Futex(rings_, FUTEX_WAIT_BITSET, seen, &until);
  }
  waiting_.store(0);
  seen_.store(rings_.load());
}

}  // namespace sparfuse
