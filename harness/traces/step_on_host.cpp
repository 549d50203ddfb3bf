// Finds the facts of a step that CPUs compute, with gloo's exchanges.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "harness/traces/collectives.hpp"
#include "harness/traces/traced_step.hpp"

namespace sparfuse::harness {

namespace {

void AddGloo(const TraceIndex& index, StepFacts& step) {
  const Trace& trace = index.trace();
  for (const TraceEvent* each :
       index.Within(EventKind::kGloo, step.window->begin, step.window->end)) {
    const char* name = trace.Name(*each).c_str() + std::string_view("gloo:").size();
    const StoredExtra* extra = trace.Stored(*each);
    StepExchange made{.event = each, .collective = name, .ranks = trace.world};
    if (extra != nullptr && extra->shape != kNoExtra && extra->type != kNoName) {
      const std::vector<std::int64_t>& shape = trace.shapes[extra->shape];
      made.dtype = trace.names[extra->type].c_str();
      made.elements =
          std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    }
    if (each->begin < step.backward_begin) {
      step.before.emplace_back(name, BytesOf(made));
      if (IsBroadcast(name)) step.broadcasts.emplace_back(each->begin, each->end);
    } else if (std::string_view(name).starts_with("all") ||
               (IsSharded(name) && each->begin <= step.backward_end)) {
      step.exchanges.push_back(made);
    } else {
      step.broadcasts_after += IsBroadcast(name);
    }
  }
  // gloo's threads take exchanges in the order of their calls. What is called later than backward,
  // such as the mean of a loss, is none of backward's.
  std::vector<TraceTime> calls;
  for (const TraceEvent* call :
       index.Within(EventKind::kCall, step.backward_begin, step.window->end)) {
    if (trace.Name(*call).starts_with("c10d::all")) calls.push_back(call->begin);
  }
  if (calls.size() != step.exchanges.size()) return;
  const auto own = std::ranges::upper_bound(calls, step.backward_end) - calls.begin();
  step.after_backward = static_cast<int>(calls.size()) - static_cast<int>(own);
  step.exchanges.resize(static_cast<std::size_t>(own));
}

}  // namespace

void AddOnHost(const TraceIndex& index, StepFacts& step) {
  AddGloo(index, step);
  step.origin = step.backward_begin;
  step.end_of_backward = step.backward_end;
  step.forward = step.backward_begin - step.first_forward;
  TraceTime tails = 0;
  for (Accumulation& each : step.accumulations) {
    each.ready = each.idle_before = each.event->end - step.backward_begin - tails;
    tails += each.tail();
  }
  step.backward = step.backward_end - step.backward_begin - tails;
  step.update = step.update_host;
  step.first_kernel = step.window->begin;
  step.idle_forward = step.forward;
  step.idle_backward = step.backward;
  step.idle_update = step.update.value_or(0);
}

}  // namespace sparfuse::harness
