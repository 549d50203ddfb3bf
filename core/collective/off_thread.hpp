// Lets a collective compute beside the communication thread.
#pragma once

#include <functional>
#include <utility>

#include "core/collective/exchange_buffers.hpp"
#include "core/transport/task.hpp"

namespace sparfuse {

// co_await OffThread(buffers, work): done by buffers.jobs, or here where there are none. Rethrows.
inline Task OffThread(ExchangeBuffers& buffers, std::function<void()> work) {
  if (buffers.jobs == nullptr) {
    work();
    co_return;
  }
  co_await Complete(buffers.jobs->Start(std::move(work)));
}

}  // namespace sparfuse
