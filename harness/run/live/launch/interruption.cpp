#include "harness/run/live/launch/interruption.hpp"

#include <csignal>

namespace sparfuse::harness {
namespace {

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");
std::atomic<int> alive{0};

void OnInterrupt(int) {
  interrupted.store(true);
  std::signal(SIGINT, SIG_DFL);
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

Interruption::Interruption() {
  if (alive++ > 0) return;
  for (const int signal : kSignals) {
    if (std::signal(signal, OnInterrupt) == SIG_IGN && signal == SIGHUP)
      std::signal(signal, SIG_IGN);
  }
}

Interruption::~Interruption() {
  if (--alive > 0) return;
  for (const int signal : kSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

const std::atomic<bool>& Interruption::flag() noexcept { return interrupted; }

}  // namespace sparfuse::harness
