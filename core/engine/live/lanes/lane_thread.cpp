#include "core/engine/live/lanes/lane_thread.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
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
  std::mutex mutex;
  std::condition_variable changed;
  State state = State::kQueued;
  std::exception_ptr error;

  bool Begin() {
    std::lock_guard lock(mutex);
    if (state != State::kQueued) return false;
    state = State::kRunning;
    return true;
  }
  void End() {
    std::lock_guard lock(mutex);
    state = State::kEnded;
    changed.notify_all();
  }
};

class JobRequest final : public Request {
 public:
  explicit JobRequest(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  ~JobRequest() override {
    std::unique_lock lock(job_->mutex);
    if (job_->state == Job::State::kQueued) job_->state = Job::State::kEnded;
    job_->changed.wait(lock, [this] { return job_->state == Job::State::kEnded; });
  }
  bool Test() override {
    std::lock_guard lock(job_->mutex);
    if (job_->state != Job::State::kEnded) return false;
    if (job_->error) std::rethrow_exception(job_->error);
    return true;
  }
  std::size_t bytes() const noexcept override { return 0; }
  int peer() const noexcept override { return -1; }

 private:
  std::shared_ptr<Job> job_;
};

}  // namespace

std::unique_ptr<Request> JobThread::Start(std::function<void()> work) {
  const auto job = std::make_shared<Job>();
  job->work = std::move(work);
  thread_.Add([this, job] {
    if (!job->Begin()) return;
    try {
      job->work();
    } catch (...) {
      job->error = std::current_exception();
    }
    job->End();
    loop_.Wake();
  });
  return std::make_unique<JobRequest>(job);
}

}  // namespace sparfuse
