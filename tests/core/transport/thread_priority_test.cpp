// Tests that threads do not inherit the raised priority of the thread that creates them.
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

TEST(Priority, ThreadsMadeByARaisedOneAreAsAny) {
  PreferCommunication();
  int raised = 0;
  int made = -1;
  CommunicationPriority got = CommunicationPriority::kNormal;
  std::thread([&] {
    got = RaiseThisThread();
    EXPECT_EQ(ThisThreadPriority(), got);
    raised = sched_getscheduler(0);
    std::thread([&] { made = sched_getscheduler(0); }).join();
  }).join();
  if (got == CommunicationPriority::kNormal) GTEST_SKIP() << "no right to another priority";
  EXPECT_EQ(raised & SCHED_RESET_ON_FORK, SCHED_RESET_ON_FORK);
  EXPECT_EQ(raised & ~SCHED_RESET_ON_FORK,
            got == CommunicationPriority::kRealTime ? SCHED_RR : SCHED_OTHER);
  EXPECT_EQ(made, SCHED_OTHER);
}

}  // namespace
}  // namespace sparfuse
