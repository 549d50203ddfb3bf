#include "core/device/completion_thread.hpp"

#include <utility>

namespace sparfuse::gpu {

CompletionThread::CompletionThread() : thread_([this] { Run(); }) {}

CompletionThread::~CompletionThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CompletionThread::Add(const GpuEvent& event, Reached reached) {
  {
    std::lock_guard lock(mutex_);
    items_.push_back({&event, std::move(reached)});
  }
  changed_.notify_all();
}

void CompletionThread::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return items_.empty() && !busy_; });
}

void CompletionThread::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !items_.empty(); });
    if (stop_) return;
    {
      const Item item = std::move(items_.front());
      items_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr error;
      try {
        item.event->Wait();
      } catch (...) {
        error = std::current_exception();
      }
      item.reached(std::move(error));
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace sparfuse::gpu
