// Lets a run end in order when it is told to end. Before and after, and in every other verb, these
// signals do what they do to any program.
#pragma once

#include <atomic>

namespace sparfuse::harness {

// While any exists SIGINT, SIGTERM and SIGHUP set flag() instead of ending the program; a second ^C
// ends it at once, and the supervisor of its trial cleans up. A SIGHUP that the program was started
// to ignore (nohup) stays ignored.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  static const std::atomic<bool>& flag() noexcept;
};

}  // namespace sparfuse::harness
