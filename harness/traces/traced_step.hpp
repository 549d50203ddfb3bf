// Declares the facts of one step of a trace, and finds them on the host or on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "harness/traces/cover.hpp"
#include "harness/traces/trace_facts.hpp"
#include "harness/traces/trace_index.hpp"

namespace sparfuse::harness {

// An AccumulateGrad and the hook after it.
struct Accumulation {
  const TraceEvent* event = nullptr;
  TraceTime evaluation_end = 0;
  TraceTime ready = 0, idle_before = 0;  // of the gradient, as in TracedTensor
  bool has_tail = false;
  std::uint32_t shape = kNoExtra;  // of Trace::shapes; kNoExtra: unknown
  TraceTime tail() const { return has_tail ? evaluation_end - event->end : 0; }
};

// Small, since a trace of small steps has one for every ten of its events: the names are the
// trace's own.
struct StepExchange {
  const TraceEvent* event = nullptr;
  const char *collective = "", *dtype = "", *group = "", *kernel = "";
  std::int64_t elements = kNoId, sequence = kNoId;
  std::int32_t ranks = -1;  // not known
};
static_assert(sizeof(StepExchange) == 64);

struct StepFacts {
  const StepWindow* window = nullptr;
  int passes = 0;  // of backward; 0: the step is none
  TraceTime first_forward = 0, backward_begin = 0, backward_end = 0;
  std::vector<Accumulation> accumulations;
  std::vector<TraceTime> hooks, calls, copies_back;
  std::vector<TraceTime> bare_hooks;  // hooks without their copies into buckets
  std::optional<TraceTime> update_host;
  int compiled_regions = 0;
  std::vector<StepExchange> exchanges;
  int after_backward = 0;                              // all-reduces that were called later
  int broadcasts_after = 0;                            // broadcasts that came later
  int of_integers = 0;                                 // all-reduces of no gradient
  std::vector<std::pair<const char*, double>> before;  // collectives and their bytes
  std::vector<TraceSpan> broadcasts;                   // of them
  // Times on the device if there is one, else on the host.
  TraceTime forward = 0, backward = 0, origin = 0, end_of_backward = 0;
  std::optional<TraceTime> update, first_kernel;
  TraceTime idle_forward = 0, idle_backward = 0, idle_update = 0;
  double idle_share = 0;
  std::vector<double> lags_us;
  std::vector<BackwardKernel> kernels;
  bool beside = false;  // an exchange runs beside a compute kernel
};

// The shape of an accumulated gradient, of a scalar {1}; none if the trace lacks it.
std::optional<std::vector<std::int64_t>> ShapeOf(const Trace& trace,
                                                 const Accumulation& accumulation);

// 0 if the trace lacks its elements or their type.
double BytesOf(const StepExchange& exchange);

// Passes, tensors and the host's times of a window. Throws Error{kConfig} for two optimizers.
StepFacts StepOf(const TraceIndex& index, const StepWindow& window);

// Throws Error{kConfig} unless all steps have the same number of tensors, no graph, and no backward
// within an optimizer.
void CheckSteps(const TraceIndex& index, const std::vector<StepFacts>& steps);

// Adds exchanges, times and ready times.
void AddOnHost(const TraceIndex& index, StepFacts& step);
void AddOnDevice(const TraceIndex& index, StepFacts& step);

// Keeps the all-reduces of the asked group. Throws Error{kConfig} for a sharded model, and for
// several groups.
void KeepExchanges(const TraceIndex& index, StepFacts& step);

// Facts that copies and kernels alone show. Throws Error{kConfig} if no kernel computes.
TracedDevice DeviceFacts(const TraceIndex& index);

inline double Us(TraceTime ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace sparfuse::harness
