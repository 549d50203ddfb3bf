// Does what collectives compute beside the communication thread: one job after another, on a thread
// that is made with the first.
#pragma once

#include <functional>
#include <memory>

#include "core/collective/exchange_buffers.hpp"
#include "core/engine/live/lanes/lane_thread.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse {

class JobThread final : public Jobs {
 public:
  // loop: woken when a job has ended; outlives it.
  explicit JobThread(ProgressLoop& loop) : loop_(loop) {}

  std::unique_ptr<Request> Start(std::function<void()> work) override;
  // Waits for the job at hand; nothing is begun any more.
  void Stop() noexcept { thread_.Stop(); }

 private:
  ProgressLoop& loop_;
  LaneThread thread_;
};

}  // namespace sparfuse
