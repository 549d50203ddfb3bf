#include "core/transport/priority.hpp"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace sparfuse {
namespace {

std::atomic<bool> preferred = false;
thread_local CommunicationPriority own = CommunicationPriority::kNormal;

// struct sched_attr of sched_setattr(2); <linux/sched/types.h> redefines what glibc's <sched.h>
// has.
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

constexpr std::uint64_t kSliceNanoseconds = 100'000;  // the least that the kernel grants

}  // namespace

std::string_view PriorityName(CommunicationPriority priority) {
  static constexpr std::string_view kNames[] = {"normal", "short slices", "real time"};
  return kNames[static_cast<std::size_t>(priority)];
}

void PreferCommunication() { preferred = true; }

CommunicationPriority RaiseThisThread() {
  if (!preferred) return own;
  sched_param round_robin{};
  round_robin.sched_priority = 1;
  if (sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &round_robin) == 0) {
    return own = CommunicationPriority::kRealTime;
  }
  SchedulingAttributes slice;
  slice.runtime_nanoseconds = kSliceNanoseconds;
  if (syscall(SYS_sched_setattr, 0, &slice, 0) == 0) own = CommunicationPriority::kShortSlice;
  return own;
}

CommunicationPriority ThisThreadPriority() { return own; }

}  // namespace sparfuse
