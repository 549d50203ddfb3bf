// Sorts the events of a trace by kind and thread, divides it into steps, and finds the launches of
// its device's work on the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/traces/cover.hpp"
#include "harness/traces/trace_facts.hpp"

namespace sparfuse::harness {

// A kernel, a copy or a fill, with its launch on the host.
struct DeviceWork {
  const TraceEvent *launch = nullptr, *event = nullptr;
  TraceTime launched() const { return launch->begin; }
  TraceTime begin() const { return event->begin; }
  TraceTime end() const { return event->end; }
  TraceTime ns() const { return event->end - event->begin; }
};

// A step, as the trace bounds it.
struct StepWindow {
  std::string_view name;  // of the trace, or of the index
  TraceTime begin = 0, end = 0;
  std::uint32_t thread = 0;
};

class TraceIndex {
 public:
  using Events = std::vector<const TraceEvent*>;

  // Keeps references to its arguments. Throws Error{kConfig} naming the file for a trace without
  // steps, or whose kernels have no launches.
  TraceIndex(const Trace& trace, const std::string& file, const TraceOptions& options);

  const Trace& trace() const { return trace_; }
  const TraceOptions& options() const { return options_; }
  const std::vector<StepWindow>& windows() const { return windows_; }
  bool OfDevice() const { return !Of(EventKind::kKernel).empty(); }

  // In order of begin.
  const Events& Of(EventKind kind) const { return by_kind_[static_cast<std::size_t>(kind)]; }
  // Every operator of a thread on the host, in order of begin.
  const Events& Operators(std::uint32_t thread) const;
  // The record_param_comms of an external id, or null.
  const TraceEvent* Comms(std::int64_t external_id) const { return Find(comms_, external_id); }
  // Work with a launch, in order of launch.
  const std::vector<DeviceWork>& compute() const { return compute_; }
  const std::vector<DeviceWork>& collectives() const { return collectives_; }

  // The events that begin in [from, to). `events` are in order of begin.
  static std::span<const TraceEvent* const> Within(const Events& events, TraceTime from,
                                                   TraceTime to);
  std::span<const TraceEvent* const> Within(EventKind kind, TraceTime from, TraceTime to) const {
    return Within(Of(kind), from, to);
  }
  // The work that was launched in [from, to). `works` are in order of launch.
  static std::span<const DeviceWork> Launched(const std::vector<DeviceWork>& works, TraceTime from,
                                              TraceTime to);

  [[noreturn]] void Fail(const std::string& what) const;

 private:
  // Sorted by first; of equal ones the first event counts.
  using ById = std::vector<std::pair<std::int64_t, const TraceEvent*>>;
  static const TraceEvent* Find(const ById& all, std::int64_t id);

  void Reserve();
  void Sort();
  void FindLaunches(const ById& launches);
  void FindWindows();

  const Trace& trace_;
  const std::string& file_;
  const TraceOptions& options_;
  std::array<Events, static_cast<std::size_t>(EventKind::kCopy) + 1> by_kind_;
  std::unordered_map<std::uint32_t, Events> operators_;  // by thread
  ById comms_;                                           // by external id
  std::vector<DeviceWork> compute_, collectives_;
  std::vector<StepWindow> windows_;
  std::deque<std::string> made_names_;
};

}  // namespace sparfuse::harness
