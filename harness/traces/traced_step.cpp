// Finds a step's passes of backward, its accumulated gradients and its times on the host.
#include "harness/traces/traced_step.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "harness/traces/collectives.hpp"

namespace sparfuse::harness {

namespace {

using Events = TraceIndex::Events;

// The evaluations, the forward operators and the nodes of a step, in order of begin.
Events EventsOfPasses(const TraceIndex& index, const StepWindow& window) {
  Events order;
  const auto add = [&](std::span<const TraceEvent* const> events) {
    order.insert(order.end(), events.begin(), events.end());
  };
  add(index.Within(EventKind::kEvaluation, window.begin, window.end));
  add(index.Within(EventKind::kForward, window.begin, window.end));
  for (const TraceEvent* each :
       TraceIndex::Within(index.Operators(window.thread), window.begin, window.end)) {
    if (each->has_sequence) order.push_back(each);
  }
  // An evaluation comes before an operator that begins with it and lies within it.
  std::ranges::stable_sort(order, {}, &TraceEvent::begin);
  return order;
}

// Finds the last pass of backward, and the first forward operator of the step.
void FindPasses(const TraceIndex& index, StepFacts& step) {
  const StepWindow& window = *step.window;
  std::unordered_map<std::uint32_t, TraceTime> evaluates_until;
  bool forward = false, any_forward = false;
  step.first_forward = window.begin;
  for (const TraceEvent* each : EventsOfPasses(index, window)) {
    TraceTime& until = evaluates_until.try_emplace(each->thread, window.begin).first->second;
    if (each->kind != EventKind::kEvaluation) {
      if (each->begin < until) continue;
      if (!std::exchange(any_forward, true)) step.first_forward = each->begin;
      forward = true;
      continue;
    }
    if (std::exchange(forward, false) || step.passes == 0) {
      ++step.passes;
      step.backward_begin = each->begin;
      step.backward_end = each->end;
      step.compiled_regions = 0;
    }
    until = std::max(until, each->end);
    step.backward_end = std::max(step.backward_end, each->end);
    step.compiled_regions += index.trace().Name(*each).ends_with(": CompiledFunctionBackward");
  }
}

// The index of a gradient's shape, from its accumulation or from the hook's mul_out.
std::uint32_t ShapeIndex(const TraceIndex& index, const Accumulation& accumulation) {
  const auto shape_of = [&](const TraceEvent& event) {
    const StoredExtra* extra = index.trace().Stored(event);
    return extra == nullptr || extra->type == kNoName ? kNoExtra : extra->shape;
  };
  std::uint32_t shape = shape_of(*accumulation.event);
  for (const TraceEvent* mul :
       index.Within(EventKind::kMulOut, accumulation.event->end, accumulation.evaluation_end)) {
    if (shape == kNoExtra && mul->thread == accumulation.event->thread) shape = shape_of(*mul);
  }
  return shape;
}

void AddAccumulations(const TraceIndex& index, StepFacts& step) {
  std::unordered_map<std::uint32_t, Events> open;  // evaluations, by thread
  const Events& evaluations = index.Of(EventKind::kEvaluation);
  auto next = std::ranges::lower_bound(evaluations, step.backward_begin, {}, &TraceEvent::begin);
  for (const TraceEvent* each :
       index.Within(EventKind::kAccumulate, step.backward_begin, step.window->end)) {
    for (; next != evaluations.end() && (*next)->begin <= each->begin; ++next)
      open[(*next)->thread].push_back(*next);
    Events& around = open[each->thread];
    while (!around.empty() && around.back()->end < each->end) around.pop_back();
    if (around.empty()) continue;  // not autograd's event
    Accumulation made{.event = each, .evaluation_end = around.back()->end};
    for (const TraceEvent* other :
         TraceIndex::Within(index.Operators(each->thread), each->end, made.evaluation_end)) {
      made.has_tail = made.has_tail || other != each;
    }
    made.shape = ShapeIndex(index, made);
    step.accumulations.push_back(made);
  }
}

void AddHost(const TraceIndex& index, StepFacts& step) {
  const StepWindow& window = *step.window;
  for (const TraceEvent* call :
       index.Within(EventKind::kCall, step.backward_begin, step.backward_end + 1))
    step.calls.push_back(call->end - call->begin);
  for (const Accumulation& each : step.accumulations) {
    if (!each.has_tail) continue;
    TraceTime hook = each.tail();
    for (const TraceEvent* call :
         index.Within(EventKind::kCall, each.event->end, each.evaluation_end)) {
      if (call->thread == each.event->thread) hook -= call->end - call->begin;
    }
    step.hooks.push_back(hook);
    for (const TraceEvent* copy :
         index.Within(EventKind::kMulOut, each.event->end, each.evaluation_end)) {
      if (copy->thread == each.event->thread) hook -= copy->end - copy->begin;
    }
    step.bare_hooks.push_back(hook);
  }
  for (const TraceEvent* copy : index.Within(EventKind::kCopyBack, window.begin, window.end))
    step.copies_back.push_back(copy->end - copy->begin);
  std::set<std::string> names;
  for (const TraceEvent* optimizer :
       index.Within(EventKind::kOptimizer, window.begin, window.end)) {
    names.insert(index.trace().Name(*optimizer));
    step.update_host = step.update_host.value_or(0) + optimizer->end - optimizer->begin;
  }
  if (names.size() > 1) {
    index.Fail(
        fmt::format("{}: {} in one step: expected one optimizer: a step of several models has no "
                    "single backward pass",
                    window.name, fmt::join(names, " and ")));
  }
}

void CheckTensors(const TraceIndex& index, const std::vector<StepFacts>& steps) {
  std::map<std::size_t, std::string> counts;
  for (const StepFacts& step : steps)
    counts.try_emplace(step.accumulations.size(), step.window->name);
  if (counts.size() == 1 && counts.begin()->first == 0) {
    index.Fail(
        "no torch::autograd::AccumulateGrad in its steps: expected training in which autograd "
        "accumulates each gradient; compiled autograd, inference and FSDP's flat parameters do "
        "not");
  }
  if (counts.size() > 1) {
    index.Fail(
        fmt::format("{} has {} accumulated gradients, and {} has {}: expected the same number in "
                    "each step; a model that sometimes leaves parameters out has no single order",
                    counts.begin()->second, counts.begin()->first, counts.rbegin()->second,
                    counts.rbegin()->first));
  }
}

// Calls on the host name what gloo's threads and kernels do not: gloo sums and scatters by an
// all-reduce.
void RefuseSharded(const TraceIndex& index, const StepFacts& step) {
  const auto refuse = [&](std::string_view collective) {
    index.Fail(
        fmt::format("{}: {} within backward: the model is sharded or split over ranks: expected "
                    "data-parallel training alone, with all-reduces in backward",
                    step.window->name, collective));
  };
  for (const StepExchange& each : step.exchanges) {
    if (IsSharded(each.collective) && each.event->begin <= step.end_of_backward)
      refuse(each.collective);
  }
  for (const TraceEvent* call :
       index.Within(EventKind::kCall, step.backward_begin, step.backward_end + 1)) {
    const std::string_view collective = CollectiveOfCall(index.trace().Name(*call));
    if (IsSharded(collective)) refuse(collective);
  }
}

}  // namespace

void KeepExchanges(const TraceIndex& index, StepFacts& step) {
  RefuseSharded(index, step);
  std::erase_if(step.exchanges,
                [](const StepExchange& each) { return !IsAllReduce(each.collective); });
  const std::size_t all = step.exchanges.size();
  std::erase_if(step.exchanges, [](const StepExchange& each) { return IsWhole(each.dtype); });
  step.of_integers = static_cast<int>(all - step.exchanges.size());
  const std::optional<std::string>& asked = index.options().group;
  const std::string_view name = step.window->name;
  std::set<std::string_view> groups;
  for (const StepExchange& each : step.exchanges) groups.insert(each.group);
  if (asked && !groups.empty() && !groups.contains(*asked)) {
    index.Fail(
        fmt::format("{}: --group {}: expected one of {}", name, *asked, fmt::join(groups, ", ")));
  }
  if (!asked && groups.size() > 1) {
    index.Fail(
        fmt::format("{}: all-reduces of the process groups {} within backward: expected --group "
                    "with one of them",
                    name, fmt::join(groups, ", ")));
  }
  if (asked)
    std::erase_if(step.exchanges, [&](const StepExchange& each) { return each.group != *asked; });
}

double BytesOf(const StepExchange& exchange) {
  const std::int64_t elements = exchange.elements == kNoId ? 0 : exchange.elements;
  return static_cast<double>(elements) * BytesOfType(exchange.dtype).value_or(0);
}

std::optional<std::vector<std::int64_t>> ShapeOf(const Trace& trace,
                                                 const Accumulation& accumulation) {
  if (accumulation.shape == kNoExtra) return std::nullopt;
  std::vector<std::int64_t> shape = trace.shapes[accumulation.shape];
  if (shape.empty()) shape.push_back(1);  // a scalar
  return shape;
}

StepFacts StepOf(const TraceIndex& index, const StepWindow& window) {
  StepFacts step;
  step.window = &window;
  FindPasses(index, step);
  if (step.passes == 0) return step;
  AddAccumulations(index, step);
  AddHost(index, step);
  return step;
}

void CheckSteps(const TraceIndex& index, const std::vector<StepFacts>& steps) {
  CheckTensors(index, steps);
  for (const StepFacts& step : steps) {
    const StepWindow& window = *step.window;
    const auto graphs = index.Within(EventKind::kGraph, window.begin, window.end);
    if (!graphs.empty()) {
      index.Fail(
          fmt::format("{}: {}: kernels of a graph have no launches of their own: expected a trace "
                      "without graphs (torch.compile: mode other than \"reduce-overhead\")",
                      window.name, index.trace().Name(*graphs.front())));
    }
    for (const TraceEvent* optimizer :
         index.Within(EventKind::kOptimizer, window.begin, window.end)) {
      if (optimizer->begin > step.backward_begin || optimizer->end < step.backward_end) continue;
      index.Fail(
          fmt::format("{}: backward runs within {}: expected an optimizer that computes no "
                      "gradients of its own; L-BFGS calls its closure as often as it likes",
                      window.name, index.trace().Name(*optimizer)));
    }
  }
}

}  // namespace sparfuse::harness
