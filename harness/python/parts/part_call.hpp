// Runs calls of parts that are written in Python, and ends one that does not return.
#pragma once

#include <pthread.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/catalog/outside_part.hpp"
#include "harness/python/gil.hpp"

namespace sparfuse::python {

// A call in this thread, with the GIL for its lifetime.
class RunningCall {
 public:
  // of: the part, "python:FILE.py:Class". called: the call with its arguments. Both outlive this
  // object.
  RunningCall(std::string_view of, std::string_view called);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

 private:
  friend struct RunningCalls;
  std::string_view of_, called_;
  const std::int64_t asked_;  // for the GIL
  const GilHeld gil_;
  const std::int64_t begun_;
  const pthread_t thread_ = pthread_self();
  int told_ = 0;  // the number of steps that the watch has taken
};

// Seconds that this process has spent in calls so far, their waiting for the GIL included.
double PythonSeconds();

// "python:FILE.py:Class: select(g, k) has not returned for 4 s" of the longest call that runs in
// this process, if it began so long ago; else empty. Needs no GIL.
std::string LatePartCall(std::chrono::milliseconds since);

// Watches the calls of this process from now on, in a thread of its own. A call that has not
// returned after half the deadline, or 30 s, is named on stderr with Python's stack. After twice
// the deadline and 5 s, by when all waits of other ranks have ended, TimeoutError is raised in it.
// If it does not end by that, because it sleeps or holds the GIL, the process ends with status 1. A
// call that a debugger has stopped is left alone.
// Of all watches the one with the longest deadline counts. The caller holds the GIL.
void WatchPartCalls(const harness::PartWatch& watch = {});

// Calls that run now are no longer watched: their user knows of them, and goes on without.
void ForgetPartCalls();

}  // namespace sparfuse::python
