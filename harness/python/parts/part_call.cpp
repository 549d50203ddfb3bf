#include "harness/python/parts/part_call.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace sparfuse::python {
namespace py = pybind11;
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEvery{250};        // how often the watch looks
constexpr milliseconds kDeadline{60'000};  // if nobody has given one
constexpr milliseconds kLongestSilence{30'000};
constexpr milliseconds kGrace{2'000};  // between the exception and the end of the process

std::atomic<std::int64_t> python_nanoseconds{0};

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// At this signal faulthandler prints the stack of the thread that gets it, which may hold the GIL
// for ever. A real-time one: programs use the others.
int StackSignal() { return SIGRTMAX - 3; }

// A debugger that waits for its user has traced the frames of the thread.
bool IsDebugged(pthread_t thread) {
  py::object frame = py::module_::import("sys").attr("_current_frames")().attr("get")(thread);
  for (; !frame.is_none(); frame = frame.attr("f_back")) {
    if (!frame.attr("f_trace").is_none()) return true;
  }
  return false;
}

}  // namespace

// Of this process.
struct RunningCalls {
  std::mutex mutex;  // guards the members
  std::vector<RunningCall*> calls;
  harness::PartWatch watch;
  pid_t watched = 0;  // the process whose thread watches

  // Never destroyed: a call may still run while the process ends.
  static RunningCalls& Get() {
    static auto* const running = new RunningCalls;
    return *running;
  }

  RunningCall* First() const {
    const auto first = std::ranges::min_element(calls, {}, &RunningCall::begun_);
    return first == calls.end() ? nullptr : *first;
  }

  static std::chrono::nanoseconds Age(const RunningCall& call) {
    return std::chrono::nanoseconds(Now() - call.begun_);
  }

  static std::string Text(const RunningCall& call) {
    return std::string(call.of_) + ": " + std::string(call.called_) + " has not returned for " +
           std::to_string(Age(call) / std::chrono::seconds(1)) + " s";
  }

  void Say(const RunningCall& call, const std::string& what) const {
    std::fprintf(stderr, "sparfuse: %s%s%s%s\n", watch.who.c_str(), watch.who.empty() ? "" : ": ",
                 Text(call).c_str(), what.c_str());
  }

  // Raises TimeoutError in the call, if it still runs when the GIL is free and is not debugged.
  static void Raise(RunningCall* call, pthread_t thread) {
    const GilHeld gil;
    const bool debugged = IsDebugged(thread);  // without the mutex: Python may give the GIL away
    RunningCalls& running = Get();
    const std::lock_guard lock(running.mutex);
    if (std::ranges::find(running.calls, call) == running.calls.end()) return;
    if (debugged) {
      std::erase(running.calls, call);
    } else {
      PyThreadState_SetAsyncExc(thread, PyExc_TimeoutError);
    }
  }

  void Look() {
    const std::lock_guard lock(mutex);
    RunningCall* const call = First();
    if (call == nullptr) return;
    const milliseconds deadline = watch.deadline.count() > 0 ? watch.deadline : kDeadline;
    const milliseconds end = 2 * deadline + milliseconds(5000);
    const milliseconds steps[] = {std::min(deadline / 2, kLongestSilence), end, end + kGrace};
    if (Age(*call) < steps[call->told_]) return;
    switch (call->told_++) {
      case 0:
        Say(*call, "; after " + std::to_string(end.count() / 1000) + " s it is ended");
        pthread_kill(call->thread_, StackSignal());
        break;
      case 1:
        std::thread(&Raise, call, call->thread_).detach();  // it may wait for the GIL for ever
        break;
      default:
        pthread_kill(call->thread_, StackSignal());
        std::this_thread::sleep_for(milliseconds(200));
        // Behind the stack: an experiment shows the last line.
        Say(*call, ", and a TimeoutError did not end it");
        std::fflush(nullptr);
        std::_Exit(1);
    }
  }
};

RunningCall::RunningCall(std::string_view of, std::string_view called)
    : of_(of), called_(called), asked_(Now()), begun_(Now()) {
  RunningCalls& running = RunningCalls::Get();
  const std::lock_guard lock(running.mutex);
  running.calls.push_back(this);
}

RunningCall::~RunningCall() {
  python_nanoseconds += Now() - asked_;
  RunningCalls& running = RunningCalls::Get();
  const std::lock_guard lock(running.mutex);
  std::erase(running.calls, this);
  if (told_ > 1) PyThreadState_SetAsyncExc(thread_, nullptr);  // one that came too late
}

double PythonSeconds() { return 1e-9 * static_cast<double>(python_nanoseconds.load()); }

std::string LatePartCall(milliseconds since) {
  RunningCalls& running = RunningCalls::Get();
  const std::lock_guard lock(running.mutex);
  const RunningCall* const first = running.First();
  if (first == nullptr || RunningCalls::Age(*first) < since) return {};
  return RunningCalls::Text(*first);
}

void WatchPartCalls(const harness::PartWatch& watch) {
  RunningCalls& running = RunningCalls::Get();
  bool begins = false;
  {
    const std::lock_guard lock(running.mutex);
    if (watch.deadline > running.watch.deadline) running.watch = watch;
    begins = std::exchange(running.watched, getpid()) != getpid();
    if (begins) running.calls.clear();  // after fork(), of threads that are not here
  }
  if (!begins) return;
  py::module_::import("faulthandler")
      .attr("register")(StackSignal(), py::arg("file") = 2, py::arg("all_threads") = false);
  std::thread([&running] {
    while (true) {
      std::this_thread::sleep_for(kEvery);
      running.Look();
    }
  }).detach();
}

void ForgetPartCalls() {
  RunningCalls& running = RunningCalls::Get();
  const std::lock_guard lock(running.mutex);
  running.calls.clear();
}

}  // namespace sparfuse::python
