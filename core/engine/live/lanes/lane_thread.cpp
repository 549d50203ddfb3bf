#include "core/engine/live/lanes/lane_thread.hpp"

#include <atomic>
#include <exception>
#include <utility>

namespace sparfuse {

void LaneThread::Add(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  }
  changed_.notify_one();
}

void LaneThread::Stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LaneThread::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

namespace {

// Shared by the request and the thread: the request may be abandoned before the job begins.
struct Job {
  enum class State { kQueued, kRunning, kEnded };
  std::function<void()> work;
  std::atomic<State> state = State::kQueued;
  std::exception_ptr error;  // read once the job has ended

  // Whether the job was queued, and is in `next` now.
  bool Leave(State next) {
    State queued = State::kQueued;
    return state.compare_exchange_strong(queued, next);
  }
};

class JobRequest final : public Request {
 public:
  explicit JobRequest(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  ~JobRequest() override {
    if (!job_->Leave(Job::State::kEnded)) job_->state.wait(Job::State::kRunning);
  }
  bool Test() override {
    if (job_->state != Job::State::kEnded) return false;
    if (job_->error) std::rethrow_exception(job_->error);
    return true;
  }

 private:
  std::shared_ptr<Job> job_;
};

}  // namespace

std::unique_ptr<Request> JobThread::Start(std::function<void()> work) {
  const auto job = std::make_shared<Job>();
  job->work = std::move(work);
  thread_.Add([this, job] {
    if (!job->Leave(Job::State::kRunning)) return;
    try {
      job->work();
    } catch (...) {
      job->error = std::current_exception();
    }
    job->state = Job::State::kEnded;
    job->state.notify_all();
    loop_.Wake();
  });
  return std::make_unique<JobRequest>(job);
}

}  // namespace sparfuse
