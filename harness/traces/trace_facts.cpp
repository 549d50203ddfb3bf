#include "harness/traces/trace_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/base/error.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

std::optional<Spread> SpreadOf(std::vector<double> samples) {
  if (samples.empty()) return std::nullopt;
  const auto [low, high] = std::ranges::minmax(samples);
  return Spread{Median(samples), low, high, static_cast<int>(samples.size())};
}

namespace {

using Time = std::int64_t;  // ns

double Us(Time ns) { return static_cast<double>(ns) / 1e3; }

constexpr double kHostBound = 0.15;        // host-bound: at least this share of backward is idle
constexpr double kDeviceBound = 0.05;      // device-bound: at most this share is idle
constexpr double kDeviceBoundLagUs = 1e3;  // and launches are at least this far ahead
constexpr std::size_t kTenth = 10, kHundredth = 100;
constexpr double kLargeDeviceCopy = 64 << 20, kLargeHostCopy = 8 << 20;

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A kernel, a copy or a fill, with its launch on the host.
struct DeviceWork {
  Time launch = 0, begin = 0, end = 0;
  std::uint32_t launch_thread = 0;
  const TraceEvent* event = nullptr;
};

struct Window {
  std::string name;
  Time begin = 0, end = 0;
  std::uint32_t thread = 0;
};

// An AccumulateGrad and the hook after it.
struct Accumulation {
  const TraceEvent* event = nullptr;
  Time evaluation_end = 0;
  bool has_tail = false;
  std::optional<std::vector<std::int64_t>> shape;
  Time tail() const { return has_tail ? evaluation_end - event->end : 0; }
};

struct Exchange {
  const TraceEvent* event = nullptr;
  Time begin = 0, end = 0;
  std::string collective, dtype, group, kernel;
  std::optional<std::int64_t> elements, ranks, sequence;
};

// The facts of one step.
struct StepFacts {
  const Window* window = nullptr;
  std::size_t position = 0;  // of the window
  int passes = 0;
  Time first_forward = 0, backward_begin = 0, backward_end = 0;
  std::vector<Accumulation> accumulations;
  std::vector<Time> hooks, calls, copies_back;
  std::optional<Time> update_host;
  int compiled_regions = 0;
  std::vector<Exchange> exchanges;
  std::size_t after_backward = 0;                      // all-reduces that were called later
  std::vector<std::pair<std::string, double>> before;  // collectives and their bytes
  std::vector<std::pair<Time, Time>> broadcasts;       // of them
  // Times on the device if there is one, else on the host.
  Time forward = 0, backward = 0, origin = 0, end_of_backward = 0;
  std::optional<Time> update, first_kernel;
  std::vector<Time> ready, idle_before;  // by tensor
  Time idle_forward = 0, idle_backward = 0, idle_update = 0;
  double idle_share = 0;
  std::vector<double> lags_us;
  std::vector<BackwardKernel> kernels;
  bool beside = false;  // an exchange runs beside a compute kernel
};

bool IsBroadcast(std::string_view collective) {
  return collective.find("broadcast") != std::string_view::npos;
}

std::optional<int> BytesOf(std::string_view type) {
  static const std::map<std::string_view, int> kBytes = {
      {"Float", 4},    {"float", 4},       {"Half", 2},
      {"BFloat16", 2}, {"c10::Half", 2},   {"c10::BFloat16", 2},
      {"Double", 8},   {"double", 8},      {"Long", 8},
      {"long int", 8}, {"Byte", 1},        {"unsigned char", 1},
      {"Char", 1},     {"signed char", 1}, {"Bool", 1},
      {"bool", 1},     {"Int", 4},         {"int", 4}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? std::nullopt : std::optional(found->second);
}

bool IsCollective(std::string_view name) {
  for (const char* prefix : {"nccl", "rccl", "mscclKernel"}) {
    if (name.starts_with(prefix)) return true;
  }
  return Contains(name, "rcclGenericKernel") || Contains(name, "ncclKernel");
}

// The collective of a kernel, called as in the profiler's fields. Used if an event lacks these
// fields.
std::string CollectiveOfKernel(std::string_view name) {
  for (const auto& [part, collective] :
       {std::pair("AllReduce", "allreduce"), std::pair("AllGather", "allgather"),
        std::pair("ReduceScatter", "reduce_scatter"), std::pair("SendRecv", "all_to_all"),
        std::pair("Broadcast", "broadcast"), std::pair("Reduce", "reduce")}) {
    if (Contains(name, part)) return collective;
  }
  return "";
}

// Treats "allreduce", "all_reduce" and "allreduce_coalesced" as one collective.
bool IsAllReduce(std::string_view collective) {
  return collective.starts_with("allreduce") || collective.starts_with("all_reduce");
}

// Whether the collective shows a model that is sharded or split over ranks.
bool IsSharded(std::string_view collective) {
  for (const char* name : {"all_to_all", "alltoall", "all_gather", "allgather", "_allgather",
                           "reduce_scatter", "_reduce_scatter", "send", "recv"}) {
    if (collective.starts_with(name)) return true;
  }
  return false;
}

constexpr const char* kWaitingNote =
    "one rank's exchanges include waiting for the last rank: the least over steps bounds a "
    "transfer from above; give the other ranks' files, too";

// The times that at least one of some intervals covers.
class Cover {
 public:
  explicit Cover(std::vector<std::pair<Time, Time>> intervals) {
    std::ranges::sort(intervals);
    for (const auto& [begin, end] : intervals) {
      if (begin >= end) continue;
      if (ends_.empty() || begin > ends_.back()) {
        before_.push_back(begins_.empty() ? 0 : before_.back() + ends_.back() - begins_.back());
        begins_.push_back(begin);
        ends_.push_back(end);
      } else {
        ends_.back() = std::max(ends_.back(), end);
      }
    }
  }

  // The covered time before `time`.
  Time Until(Time time) const {
    const auto after = std::ranges::upper_bound(begins_, time) - begins_.begin();
    if (after == 0) return 0;
    const auto at = static_cast<std::size_t>(after - 1);
    return before_[at] + std::min(time, ends_[at]) - begins_[at];
  }
  Time Between(Time from, Time to) const { return to > from ? Until(to) - Until(from) : 0; }

 private:
  std::vector<Time> begins_, ends_, before_;
};

class FactsMaker {
 public:
  FactsMaker(const Trace& trace, const std::string& file, const TraceOptions& options)
      : trace_(trace), file_(file), options_(options) {}

  TraceFacts Make();

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    SPARFUSE_THROW(kConfig, fmt::format("{}: {}", file_, what));
  }
  using Events = std::vector<const TraceEvent*>;

  void Sort();  // sorts events by kind, and finds the launches of kernels
  void FindWindows();
  StepFacts StepOf(const Window& window) const;
  void FindPasses(StepFacts& step) const;
  void AddAccumulations(StepFacts& step) const;
  void AddHost(StepFacts& step) const;
  void AddOnHost(StepFacts& step) const;
  void AddOnDevice(StepFacts& step) const;
  void AddGloo(StepFacts& step) const;
  void AddCollectives(StepFacts& step) const;
  Exchange ExchangeOf(const DeviceWork& work) const;
  void CheckExchanges(StepFacts& step) const;
  void CheckSteps(const std::vector<StepFacts>& steps) const;
  TracedDevice OnDevice() const;
  bool OfDevice() const { return !Of(EventKind::kKernel).empty(); }
  std::vector<TracedExchange> ExchangesOf(const std::vector<StepFacts>& steps,
                                          std::vector<std::string>& notes) const;
  // The steps with a backward pass; the first, which is unlike others, only if there are few.
  std::vector<StepFacts> UsedSteps(TraceFacts& facts) const;
  void AddTimes(const std::vector<StepFacts>& steps, TraceFacts& facts) const;
  static void AddHostTimes(const std::vector<StepFacts>& steps, TraceFacts& facts);
  void AddDeviceFacts(const std::vector<StepFacts>& steps, TraceFacts& facts) const;
  static void AddTensors(const std::vector<StepFacts>& steps, TraceFacts& facts);
  void AddExchanges(const std::vector<StepFacts>& steps, TraceFacts& facts) const;
  static void AddBroadcasts(const std::vector<StepFacts>& steps, TraceFacts& facts);

  // The events that begin in [from, to). `events` are in order of begin.
  static std::span<const TraceEvent* const> Within(const Events& events, Time from, Time to) {
    const auto first = std::ranges::lower_bound(events, from, {}, &TraceEvent::begin);
    const auto last = std::ranges::lower_bound(first, events.end(), to, {}, &TraceEvent::begin);
    return {first, last};
  }
  // The work that was launched in [from, to). `works` are in order of launch.
  static std::span<const DeviceWork> Launched(const std::vector<DeviceWork>& works, Time from,
                                              Time to) {
    const auto first = std::ranges::lower_bound(works, from, {}, &DeviceWork::launch);
    const auto last = std::ranges::lower_bound(first, works.end(), to, {}, &DeviceWork::launch);
    return {first, last};
  }

  const Trace& trace_;
  const std::string& file_;
  const TraceOptions& options_;
  std::array<Events, static_cast<std::size_t>(EventKind::kCopy) + 1> by_kind_;
  const Events& Of(EventKind kind) const { return by_kind_[static_cast<std::size_t>(kind)]; }
  std::unordered_map<std::uint32_t, Events> operators_;        // by thread: every cpu_op
  std::unordered_map<std::int64_t, const TraceEvent*> comms_;  // by external id
  std::vector<DeviceWork> compute_, collectives_;              // in order of launch
  std::vector<Window> windows_;
};

void FactsMaker::Sort() {
  std::unordered_map<std::int64_t, const TraceEvent*> launches;
  for (const TraceEvent& event : trace_.events) {
    by_kind_[static_cast<std::size_t>(event.kind)].push_back(&event);
    switch (event.kind) {
      case EventKind::kLaunch:
        launches.try_emplace(event.correlation, &event);
        break;
      case EventKind::kComms:
        if (event.external_id != kNoId) comms_.try_emplace(event.external_id, &event);
        [[fallthrough]];
      case EventKind::kCall:
      case EventKind::kMulOut:
      case EventKind::kCopyBack:
      case EventKind::kAccumulate:
      case EventKind::kOperator:
        operators_[event.thread].push_back(&event);
        break;
      default:
        break;
    }
  }
  std::size_t lost = 0;
  Events works = Of(EventKind::kKernel);
  works.insert(works.end(), Of(EventKind::kCopy).begin(), Of(EventKind::kCopy).end());
  for (const TraceEvent* kernel : works) {
    const auto launch = launches.find(kernel->correlation);
    if (kernel->correlation == kNoId || launch == launches.end()) {
      ++lost;
      continue;
    }
    const bool collective =
        kernel->kind == EventKind::kKernel && IsCollective(trace_.Name(*kernel));
    (collective ? collectives_ : compute_)
        .push_back(
            {launch->second->begin, kernel->begin, kernel->end, launch->second->thread, kernel});
  }
  const std::size_t kernels = works.size();
  if (kernels > 0 && 2 * lost > kernels && Of(EventKind::kGraph).empty()) {
    Fail(
        fmt::format("{} of {} kernels have no launch on the host: expected a trace of both "
                    "activities, CPU and CUDA, in one file",
                    lost, kernels));
  }
  for (std::vector<DeviceWork>* each : {&compute_, &collectives_})
    std::ranges::stable_sort(*each, {}, &DeviceWork::launch);
}

void FactsMaker::FindWindows() {
  const Events& optimizers = Of(EventKind::kOptimizer);
  if (options_.optimizer_steps) {
    if (optimizers.size() < 2) {
      Fail(fmt::format("{} Optimizer.step#: expected two or more for --steps optimizer",
                       optimizers.size()));
    }
    for (std::size_t i = 1; i < optimizers.size(); ++i) {
      windows_.push_back({fmt::format("optimizer#{}", i), optimizers[i - 1]->end,
                          optimizers[i]->end, optimizers[i]->thread});
    }
    return;
  }
  const Events& steps = Of(EventKind::kStep);
  if (steps.empty()) {
    Fail(fmt::format("no ProfilerStep#N: expected a schedule and prof.step() after each step{}",
                     optimizers.size() > 1 ? ", or --steps optimizer, which takes a step from one "
                                             "Optimizer.step# to the next"
                                           : ""));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    windows_.push_back({trace_.Name(*steps[i]), steps[i]->begin,
                        i + 1 < steps.size() ? steps[i + 1]->begin : steps[i]->end,
                        steps[i]->thread});
  }
}

// Finds the last pass of backward, and the first forward operator of the step.
void FactsMaker::FindPasses(StepFacts& step) const {
  const Window& window = *step.window;
  Events order;
  const auto add = [&](std::span<const TraceEvent* const> events) {
    order.insert(order.end(), events.begin(), events.end());
  };
  add(Within(Of(EventKind::kEvaluation), window.begin, window.end));
  add(Within(Of(EventKind::kForward), window.begin, window.end));
  if (const auto own = operators_.find(window.thread); own != operators_.end()) {
    for (const TraceEvent* each : Within(own->second, window.begin, window.end)) {
      if (each->has_sequence) order.push_back(each);
    }
  }
  // An evaluation comes before an operator that begins with it and lies within it.
  std::ranges::stable_sort(order, {}, &TraceEvent::begin);
  std::unordered_map<std::uint32_t, Time> evaluates_until;
  bool forward = false, any_forward = false;
  step.first_forward = window.begin;
  for (const TraceEvent* each : order) {
    Time& until = evaluates_until.try_emplace(each->thread, window.begin).first->second;
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
    step.compiled_regions += trace_.Name(*each).ends_with(": CompiledFunctionBackward");
  }
}

void FactsMaker::AddAccumulations(StepFacts& step) const {
  std::unordered_map<std::uint32_t, Events> open;  // evaluations, by thread
  const Events& evaluations = Of(EventKind::kEvaluation);
  const Events& multiplied = Of(EventKind::kMulOut);
  auto next = std::ranges::lower_bound(evaluations, step.backward_begin, {}, &TraceEvent::begin);
  for (const TraceEvent* each :
       Within(Of(EventKind::kAccumulate), step.backward_begin, step.window->end)) {
    for (; next != evaluations.end() && (*next)->begin <= each->begin; ++next)
      open[(*next)->thread].push_back(*next);
    Events& around = open[each->thread];
    while (!around.empty() && around.back()->end < each->end) around.pop_back();
    if (around.empty()) continue;  // not autograd's event
    Accumulation made{each, around.back()->end, false, {}};
    const auto own = operators_.find(each->thread);
    for (const TraceEvent* other : Within(own->second, each->end, made.evaluation_end))
      made.has_tail = made.has_tail || other != each;
    const auto take_shape = [&](const TraceEvent& event) {
      const std::optional<EventExtra> extra = trace_.Extra(event);
      if (made.shape || !extra || !extra->shape || extra->type.empty()) return;
      made.shape = extra->shape;
      if (made.shape->empty()) made.shape->push_back(1);  // a scalar
    };
    take_shape(*each);
    for (const TraceEvent* mul : Within(multiplied, each->end, made.evaluation_end)) {
      if (mul->thread == each->thread) take_shape(*mul);
    }
    step.accumulations.push_back(std::move(made));
  }
}

void FactsMaker::AddHost(StepFacts& step) const {
  const Window& window = *step.window;
  for (const TraceEvent* call :
       Within(Of(EventKind::kCall), step.backward_begin, step.backward_end + 1))
    step.calls.push_back(call->end - call->begin);
  for (const Accumulation& each : step.accumulations) {
    if (!each.has_tail) continue;
    Time hook = each.tail();
    for (const TraceEvent* call :
         Within(Of(EventKind::kCall), each.event->end, each.evaluation_end)) {
      if (call->thread == each.event->thread) hook -= call->end - call->begin;
    }
    step.hooks.push_back(hook);
  }
  for (const TraceEvent* copy : Within(Of(EventKind::kCopyBack), window.begin, window.end))
    step.copies_back.push_back(copy->end - copy->begin);
  std::set<std::string> names;
  for (const TraceEvent* optimizer : Within(Of(EventKind::kOptimizer), window.begin, window.end)) {
    names.insert(trace_.Name(*optimizer));
    step.update_host = step.update_host.value_or(0) + optimizer->end - optimizer->begin;
  }
  if (names.size() > 1) {
    Fail(
        fmt::format("{}: {} in one step: expected one optimizer: a step of several models has no "
                    "single backward pass",
                    window.name, fmt::join(names, " and ")));
  }
}

void FactsMaker::AddOnHost(StepFacts& step) const {
  step.origin = step.backward_begin;
  step.end_of_backward = step.backward_end;
  step.forward = step.backward_begin - step.first_forward;
  Time tails = 0;
  for (const Accumulation& each : step.accumulations) {
    step.ready.push_back(each.event->end - step.backward_begin - tails);
    tails += each.tail();
  }
  step.backward = step.backward_end - step.backward_begin - tails;
  step.update = step.update_host;
  step.first_kernel = step.window->begin;
  step.idle_before = step.ready;
  step.idle_forward = step.forward;
  step.idle_backward = step.backward;
  step.idle_update = step.update.value_or(0);
}

void FactsMaker::AddGloo(StepFacts& step) const {
  for (const TraceEvent* each :
       Within(Of(EventKind::kGloo), step.window->begin, step.window->end)) {
    const std::string collective = trace_.Name(*each).substr(std::string_view("gloo:").size());
    const std::optional<EventExtra> extra = trace_.Extra(*each);
    Exchange made{each, each->begin, each->end, collective, "", "", "", {}, {}, {}};
    if (extra && extra->shape && !extra->type.empty()) {
      made.dtype = extra->type;
      made.elements = std::accumulate(extra->shape->begin(), extra->shape->end(), std::int64_t{1},
                                      std::multiplies<>());
    }
    made.ranks = trace_.world;
    if (each->begin < step.backward_begin) {
      const double bytes =
          static_cast<double>(made.elements.value_or(0)) * BytesOf(made.dtype).value_or(0);
      step.before.emplace_back(collective, bytes);
      if (IsBroadcast(collective)) step.broadcasts.emplace_back(made.begin, made.end);
    } else if (collective.starts_with("all")) {
      step.exchanges.push_back(std::move(made));
    }
  }
  // gloo's threads take exchanges in the order of their calls. What is called later than backward,
  // such as the mean of a loss, is none of backward's.
  std::vector<Time> calls;
  for (const TraceEvent* call :
       Within(Of(EventKind::kCall), step.backward_begin, step.window->end)) {
    if (trace_.Name(*call).starts_with("c10d::all")) calls.push_back(call->begin);
  }
  if (calls.size() != step.exchanges.size()) return;
  const auto own = std::ranges::upper_bound(calls, step.backward_end) - calls.begin();
  step.after_backward = calls.size() - static_cast<std::size_t>(own);
  step.exchanges.resize(static_cast<std::size_t>(own));
}

Exchange FactsMaker::ExchangeOf(const DeviceWork& work) const {
  Exchange made{work.event, work.begin, work.end, "", "", "", trace_.Name(*work.event), {}, {}, {}};
  const auto take = [&](const TraceEvent& event) {
    const std::optional<EventExtra> extra = trace_.Extra(event);
    if (!extra || extra->collective.empty() || !made.collective.empty()) return;
    made.collective = extra->collective;
    made.dtype = extra->dtype;
    made.group = extra->group;
    made.elements = extra->elements;
    made.ranks = extra->ranks;
    made.sequence = extra->sequence;
  };
  take(*work.event);
  if (const auto comms = comms_.find(work.event->external_id);
      work.event->external_id != kNoId && comms != comms_.end()) {
    take(*comms->second);
  }
  if (made.collective.empty()) made.collective = CollectiveOfKernel(made.kernel);
  return made;
}

void FactsMaker::AddCollectives(StepFacts& step) const {
  for (const DeviceWork& work : Launched(collectives_, step.window->begin, step.window->end)) {
    Exchange made = ExchangeOf(work);
    if (made.collective.empty()) {
      Fail(fmt::format(
          "{}: the kernel {} has no field \"Collective name\", and its name tells none: "
          "expected a trace of a later PyTorch",
          step.window->name, made.kernel));
    }
    if (work.launch < step.backward_begin) {
      const double bytes =
          static_cast<double>(made.elements.value_or(0)) * BytesOf(made.dtype).value_or(0);
      step.before.emplace_back(made.collective, bytes);
      if (IsBroadcast(made.collective)) step.broadcasts.emplace_back(made.begin, made.end);
    } else if (work.launch <= step.backward_end) {
      step.exchanges.push_back(std::move(made));
    }
  }
}

void FactsMaker::CheckExchanges(StepFacts& step) const {
  std::set<std::string> groups;
  std::vector<Exchange> kept;
  for (Exchange& each : step.exchanges) {
    if (IsSharded(each.collective) && each.event->begin <= step.end_of_backward) {
      Fail(
          fmt::format("{}: {} within backward: the model is sharded or split over ranks: expected "
                      "data-parallel training alone, with all-reduces in backward",
                      step.window->name, each.collective));
    }
    if (!IsAllReduce(each.collective)) continue;
    groups.insert(each.group);
    if (!options_.group || each.group == *options_.group) kept.push_back(std::move(each));
  }
  if (options_.group && !groups.empty() && !groups.contains(*options_.group)) {
    Fail(fmt::format("{}: --group {}: expected one of {}", step.window->name, *options_.group,
                     fmt::join(groups, ", ")));
  }
  if (!options_.group && groups.size() > 1) {
    Fail(
        fmt::format("{}: all-reduces of the process groups {} within backward: expected --group "
                    "with one of them",
                    step.window->name, fmt::join(groups, ", ")));
  }
  step.exchanges = std::move(kept);
}

void FactsMaker::AddOnDevice(StepFacts& step) const {
  const Window& window = *step.window;
  const std::span<const DeviceWork> works = Launched(compute_, window.begin, window.end);
  const auto forward = Launched(compute_, step.first_forward, step.backward_begin);
  if (works.empty() || forward.empty()) {
    Fail(
        fmt::format("{}: no kernel was launched in its forward pass: expected a trace that began "
                    "before the step",
                    window.name));
  }
  const Time first = std::ranges::min(forward, {}, &DeviceWork::begin).begin;
  const Time forward_end = std::ranges::max(forward, {}, &DeviceWork::end).end;
  step.first_kernel = std::ranges::min(works, {}, &DeviceWork::begin).begin;
  step.forward = forward_end - first;
  step.origin = forward_end;
  // By launch: the end of all earlier work, and the time of its share that hooks launched.
  std::vector<Time> done = {forward_end}, hooks = {0};
  std::vector<bool> is_hook;
  for (const DeviceWork& work : works) {
    const bool hook = std::ranges::any_of(step.accumulations, [&](const Accumulation& each) {
      return each.has_tail && work.launch_thread == each.event->thread &&
             work.launch >= each.event->end && work.launch < each.evaluation_end;
    });
    is_hook.push_back(hook);
    done.push_back(done.size() == 1 ? work.end : std::max(done.back(), work.end));
    hooks.push_back(hooks.back() + (hook ? work.end - work.begin : 0));
  }
  const auto before = [&](Time launch) {
    return static_cast<std::size_t>(
        std::ranges::lower_bound(works, launch, {}, &DeviceWork::launch) - works.begin());
  };
  for (const Accumulation& each : step.accumulations) {
    const std::size_t n = before(each.event->end);
    step.ready.push_back(done[n] - forward_end - hooks[n]);
  }
  const std::size_t all = before(step.backward_end);
  step.end_of_backward = done[all];
  step.backward = done[all] - forward_end - hooks[all];
  std::vector<std::pair<Time, Time>> busy, exchanging, without_hooks, of_forward;
  for (const DeviceWork& work : forward) of_forward.emplace_back(work.begin, work.end);
  step.idle_forward = step.forward - Cover(std::move(of_forward)).Until(forward_end);
  for (const Exchange& each : step.exchanges) exchanging.emplace_back(each.begin, each.end);
  const Cover exchanges(std::move(exchanging));
  for (const DeviceWork& work : Launched(compute_, step.backward_begin, step.backward_end + 1)) {
    step.lags_us.push_back(Us(work.begin - work.launch));
    const std::pair<Time, Time> span(std::max(work.begin, forward_end),
                                     std::min(work.end, done[all]));
    busy.push_back(span);
    const Time shared = exchanges.Between(work.begin, work.end), whole = work.end - work.begin;
    step.beside = step.beside || shared > 0;
    if (is_hook[static_cast<std::size_t>(&work - works.data())]) continue;
    without_hooks.push_back(span);
    if (!options_.keep_kernels) continue;
    step.kernels.push_back(
        {trace_.Name(*work.event), Us(whole),
         whole > 0 ? static_cast<double>(shared) / static_cast<double>(whole) : 0.0});
  }
  const Time span = done[all] - forward_end;
  if (span > 0) {
    step.idle_share = 1 - static_cast<double>(Cover(std::move(busy)).Until(done[all])) /
                              static_cast<double>(span);
  }
  const Cover computing(std::move(without_hooks));
  step.idle_backward = std::max<Time>(0, step.backward - computing.Until(done[all]));
  for (std::size_t k = 0; k < step.accumulations.size(); ++k) {
    const Time end = done[before(step.accumulations[k].event->end)];
    step.idle_before.push_back(std::max<Time>(0, step.ready[k] - computing.Until(end)));
  }
  std::optional<Time> update_begin, update_end;
  std::vector<std::pair<Time, Time>> updating;
  for (const TraceEvent* optimizer : Within(Of(EventKind::kOptimizer), window.begin, window.end)) {
    for (const DeviceWork& work : Launched(compute_, optimizer->begin, optimizer->end + 1)) {
      update_begin = std::min(update_begin.value_or(work.begin), work.begin);
      update_end = std::max(update_end.value_or(work.end), work.end);
      updating.emplace_back(work.begin, work.end);
    }
  }
  if (!update_begin) return;
  step.update = *update_end - *update_begin;
  step.idle_update = *step.update - Cover(std::move(updating)).Until(*update_end);
}

StepFacts FactsMaker::StepOf(const Window& window) const {
  StepFacts step;
  step.window = &window;
  FindPasses(step);
  if (step.passes == 0) return step;
  AddAccumulations(step);
  AddHost(step);
  return step;
}

void FactsMaker::CheckSteps(const std::vector<StepFacts>& steps) const {
  std::map<std::size_t, std::string> counts;
  for (const StepFacts& step : steps)
    counts.try_emplace(step.accumulations.size(), step.window->name);
  if (counts.size() == 1 && counts.begin()->first == 0) {
    Fail(
        "no torch::autograd::AccumulateGrad in its steps: expected training in which autograd "
        "accumulates each gradient; compiled autograd, inference and FSDP's flat parameters do "
        "not");
  }
  if (counts.size() > 1) {
    Fail(fmt::format(
        "{} has {} accumulated gradients, and {} has {}: expected as many in each step; "
        "a model that leaves parameters out by condition has no single order",
        counts.begin()->second, counts.begin()->first, counts.rbegin()->second,
        counts.rbegin()->first));
  }
  for (const StepFacts& step : steps) {
    const auto graphs = Within(Of(EventKind::kGraph), step.window->begin, step.window->end);
    if (!graphs.empty()) {
      Fail(
          fmt::format("{}: {}: kernels of a graph have no launches of their own: expected a trace "
                      "without graphs (torch.compile: mode other than \"reduce-overhead\")",
                      step.window->name, trace_.Name(*graphs.front())));
    }
    for (const TraceEvent* optimizer :
         Within(Of(EventKind::kOptimizer), step.window->begin, step.window->end)) {
      if (optimizer->begin > step.backward_begin || optimizer->end < step.backward_end) continue;
      Fail(
          fmt::format("{}: backward runs within {}: expected an optimizer that computes no "
                      "gradients of its own; L-BFGS calls its closure as often as it likes",
                      step.window->name, trace_.Name(*optimizer)));
    }
  }
}

TracedDevice FactsMaker::OnDevice() const {
  TracedDevice facts;
  std::vector<double> us, memory, host;
  for (const DeviceWork& work : compute_) {
    if (work.event->kind == EventKind::kKernel) {
      us.push_back(Us(work.end - work.begin));
      continue;
    }
    const std::optional<EventExtra> extra = trace_.Extra(*work.event);
    const std::string& name = trace_.Name(*work.event);
    if (!extra || extra->bytes == 0 || work.end == work.begin) continue;
    const double rate = extra->bytes / static_cast<double>(work.end - work.begin);  // GB/s
    if (Contains(name, "DtoD") && extra->bytes >= kLargeDeviceCopy) memory.push_back(2 * rate);
    const bool host_copy = Contains(name, "DtoH") || Contains(name, "HtoD");
    if (host_copy && Contains(name, "Pinned") && extra->bytes >= kLargeHostCopy)
      host.push_back(rate);
  }
  if (us.empty()) Fail("no kernel of computation has a launch: expected a trace of training");
  std::ranges::sort(us);
  facts.kernel_us = *SpreadOf(us);
  facts.kernel_us_tenth = us[us.size() / kTenth];
  facts.kernel_us_hundredth = us[us.size() / kHundredth];
  facts.memory_gbytes_per_s = SpreadOf(memory);
  facts.host_link_gbytes_per_s = SpreadOf(host);
  return facts;
}

std::vector<TracedExchange> FactsMaker::ExchangesOf(const std::vector<StepFacts>& steps,
                                                    std::vector<std::string>& notes) const {
  std::vector<TracedExchange> made;
  const StepFacts& first = steps.front();
  for (const StepFacts& step : steps) {
    // The profiler leaves out the size of an exchange now and then.
    const bool same = std::ranges::equal(
        step.exchanges, first.exchanges, [](const Exchange& a, const Exchange& b) {
          return a.elements == b.elements || !a.elements || !b.elements;
        });
    if (same) continue;
    notes.push_back(fmt::format("{} and {} have other exchanges ({} and {}): none is taken",
                                first.window->name, step.window->name, first.exchanges.size(),
                                step.exchanges.size()));
    return made;
  }
  for (std::size_t i = 0; i < first.exchanges.size(); ++i) {
    const auto sized = std::ranges::find_if(
        steps, [i](const StepFacts& step) { return step.exchanges[i].elements.has_value(); });
    const Exchange& exchange = (sized == steps.end() ? first : *sized).exchanges[i];
    TracedExchange each;
    each.collective = exchange.collective;
    each.elements = exchange.elements;
    each.dtype = exchange.dtype;
    each.ranks = exchange.ranks;
    if (!exchange.group.empty()) each.group = exchange.group;
    each.kernel = exchange.kernel;
    each.sequence = exchange.sequence;
    std::vector<double> begins, ends;
    for (const StepFacts& step : steps) {
      const Exchange& of_step = step.exchanges[i];
      each.us_by_step.push_back(Us(of_step.end - of_step.begin));
      begins.push_back(Us(of_step.begin - step.origin));
      ends.push_back(Us(of_step.end - step.origin));
    }
    each.us = *SpreadOf(each.us_by_step);
    each.begin_us = Median(begins);
    each.end_us = Median(ends);
    const std::optional<int> size = BytesOf(each.dtype);
    if (each.elements && size) {
      each.bytes = static_cast<double>(*each.elements) * *size;
      if (each.ranks && *each.ranks > 1 && each.us.low > 0) {
        const double n = static_cast<double>(*each.ranks);
        each.bus_gbytes_per_s_at_low = *each.bytes * 2 * (n - 1) / n / each.us.low / 1e3;
      }
    }
    made.push_back(std::move(each));
  }
  return made;
}

template <class Of>
std::optional<Spread> Over(const std::vector<StepFacts>& steps, Of of) {
  std::vector<double> all;
  for (const StepFacts& step : steps) {
    for (const Time ns : of(step)) all.push_back(Us(ns));
  }
  return SpreadOf(std::move(all));
}

// A time, or none, for Over.
std::vector<Time> One(std::optional<Time> value) {
  return value ? std::vector<Time>{*value} : std::vector<Time>();
}

TraceFacts FactsMaker::Make() {
  Sort();
  FindWindows();
  TraceFacts facts;
  facts.file = trace_.file;
  facts.sha256 = trace_.sha256;
  facts.rank = trace_.rank;
  facts.world = trace_.world;
  facts.backend = trace_.backend;
  facts.hardware = trace_.hardware;
  const std::vector<StepFacts> steps = UsedSteps(facts);
  AddTimes(steps, facts);
  AddHostTimes(steps, facts);
  if (OfDevice()) AddDeviceFacts(steps, facts);
  AddTensors(steps, facts);
  AddExchanges(steps, facts);
  AddBroadcasts(steps, facts);
  if (facts.period_us) {
    facts.rest_us = facts.period_us->median - facts.forward_us.median - facts.backward_us.median -
                    facts.update_us.median - (facts.exposed_us ? facts.exposed_us->median : 0);
  }
  if (const int regions = steps.front().compiled_regions; regions > 0) {
    facts.compiled_regions = regions;
    facts.notes.push_back(
        fmt::format("backward in {} compiled region{}: gradients come out at their ends", regions,
                    regions == 1 ? "" : "s"));
  }
  return facts;
}

std::vector<StepFacts> FactsMaker::UsedSteps(TraceFacts& facts) const {
  std::vector<StepFacts> steps;
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    facts.steps_found.push_back(windows_[i].name);
    StepFacts step = StepOf(windows_[i]);
    if (step.passes == 0) continue;
    step.position = i;
    steps.push_back(std::move(step));
  }
  if (steps.empty()) {
    Fail(
        fmt::format("no evaluation of autograd in its {} steps: expected training: no backward "
                    "pass is there",
                    windows_.size()));
  }
  if (steps.size() >= 3) {
    steps.erase(steps.begin());
  } else {
    facts.notes.push_back(
        fmt::format("{} step{}: too few to tell a usual step; expected four or more", steps.size(),
                    steps.size() == 1 ? "" : "s"));
  }
  CheckSteps(steps);
  const bool device = OfDevice();
  facts.device = device ? "device" : "cpu";
  for (StepFacts& step : steps) {
    device ? AddCollectives(step) : AddGloo(step);
    device ? AddOnDevice(step) : AddOnHost(step);
    CheckExchanges(step);
  }
  std::set<int> passes;
  for (const StepFacts& step : steps) {
    facts.steps_used.push_back(step.window->name);
    facts.tensors_a_step.push_back(static_cast<int>(step.accumulations.size()));
    passes.insert(step.passes);
  }
  facts.passes_a_step.assign(passes.begin(), passes.end());
  return steps;
}

void FactsMaker::AddTimes(const std::vector<StepFacts>& steps, TraceFacts& facts) const {
  std::vector<std::pair<Time, Time>> computing;
  for (const DeviceWork& work : compute_) computing.emplace_back(work.begin, work.end);
  const Cover busy(std::move(computing));
  std::vector<double> periods, idle;
  for (std::size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].position != steps[i - 1].position + 1) continue;
    const Time from = *steps[i - 1].first_kernel, to = *steps[i].first_kernel;
    periods.push_back(Us(to - from));
    idle.push_back(Us(to - from - busy.Between(from, to)));
  }
  facts.period_us = SpreadOf(periods);
  if (!idle.empty()) facts.idle.period_us = Median(idle);
  facts.forward_us = *Over(steps, [&](const StepFacts& s) { return One(s.forward); });
  facts.backward_us = *Over(steps, [&](const StepFacts& s) { return One(s.backward); });
  facts.update_us =
      Over(steps, [&](const StepFacts& s) { return One(s.update); }).value_or(Spread());
  const auto idle_of = [&](Time StepFacts::*part) {
    return Over(steps, [&](const StepFacts& s) { return One(s.*part); })->median;
  };
  facts.idle.forward_us = idle_of(&StepFacts::idle_forward);
  facts.idle.backward_us = idle_of(&StepFacts::idle_backward);
  facts.idle.update_us = idle_of(&StepFacts::idle_update);
}

void FactsMaker::AddHostTimes(const std::vector<StepFacts>& steps, TraceFacts& facts) {
  if (std::ranges::any_of(steps, [](const StepFacts& s) { return !s.hooks.empty(); })) {
    facts.hooks_us = Over(steps, [&](const StepFacts& s) {
      Time tails = 0;
      for (const Accumulation& each : s.accumulations) tails += each.tail();
      return One(tails);
    });
  }
  TracedHost& host = facts.host;
  host.forward_us =
      Over(steps, [&](const StepFacts& s) { return One(s.backward_begin - s.first_forward); });
  host.backward_us =
      Over(steps, [&](const StepFacts& s) { return One(s.backward_end - s.backward_begin); });
  host.update_us = Over(steps, [&](const StepFacts& s) { return One(s.update_host); });
  host.hook_us_a_tensor = Over(steps, [](const StepFacts& s) { return s.hooks; });
  host.exchange_call_us = Over(steps, [](const StepFacts& s) { return s.calls; });
  host.copy_back_us_a_tensor = Over(steps, [](const StepFacts& s) { return s.copies_back; });
  std::vector<Time> calls;
  for (const StepFacts& step : steps)
    calls.insert(calls.end(), step.calls.begin(), step.calls.end());
  if (!calls.empty()) {
    std::ranges::sort(calls);
    facts.exchange_call_tenth_us = Us(calls[calls.size() / kTenth]);
    facts.exchange_call_ninetieth_us = Us(calls[calls.size() - 1 - calls.size() / kTenth]);
  }
}

void FactsMaker::AddDeviceFacts(const std::vector<StepFacts>& steps, TraceFacts& facts) const {
  std::vector<double> shares, lags;
  for (const StepFacts& step : steps) {
    shares.push_back(step.idle_share);
    lags.insert(lags.end(), step.lags_us.begin(), step.lags_us.end());
    if (options_.keep_kernels) facts.kernels.push_back(step.kernels);
  }
  facts.idle_share_of_backward = Median(shares);
  facts.launch_lag_us = SpreadOf(lags);
  facts.bound = *facts.idle_share_of_backward > kHostBound ? "host-bound"
                : *facts.idle_share_of_backward < kDeviceBound && facts.launch_lag_us &&
                        facts.launch_lag_us->median > kDeviceBoundLagUs
                    ? "device-bound"
                    : "mixed";
  facts.on_device = OnDevice();
}

void FactsMaker::AddTensors(const std::vector<StepFacts>& steps, TraceFacts& facts) {
  for (std::size_t k = 0; k < steps.front().accumulations.size(); ++k) {
    std::vector<double> ready, idle_before;
    for (const StepFacts& step : steps) {
      ready.push_back(Us(step.ready[k]));
      idle_before.push_back(Us(step.idle_before[k]));
      facts.same_order =
          facts.same_order && step.accumulations[k].shape == steps.front().accumulations[k].shape;
    }
    const Spread spread = *SpreadOf(ready);
    facts.tensors.push_back({steps.front().accumulations[k].shape, spread.median, spread.low,
                             spread.high, Median(idle_before)});
  }
  if (!facts.same_order)
    facts.notes.push_back("tensors of other shapes are ready at one position in its steps");
}

void FactsMaker::AddExchanges(const std::vector<StepFacts>& steps, TraceFacts& facts) const {
  facts.exchanges = ExchangesOf(steps, facts.notes);
  if (const std::size_t after = steps.front().after_backward; after > 0) {
    facts.notes.push_back(fmt::format(
        "{} all-reduce{} of a step {} called after backward: none of backward's exchanges", after,
        after == 1 ? "" : "s", after == 1 ? "is" : "are"));
  }
  if (!facts.exchanges.empty()) {
    facts.exposed_us = Over(steps, [&](const StepFacts& step) {
      Time last = step.end_of_backward;
      for (const Exchange& each : step.exchanges) last = std::max(last, each.end);
      return One(last - step.end_of_backward);
    });
    const bool beside = std::ranges::any_of(steps, [](const StepFacts& s) { return s.beside; });
    if (OfDevice() && !beside) {
      facts.notes.push_back(
          "no exchange runs beside a kernel of backward, though each was launched "
          "before its end: a queue or a stream holds them back");
    }
    if (facts.world > 1) facts.notes.push_back(kWaitingNote);
  }
}

void FactsMaker::AddBroadcasts(const std::vector<StepFacts>& steps, TraceFacts& facts) {
  facts.buffers_us = Over(steps, [&](const StepFacts& step) {
                       const Time until = step.origin;
                       return One(Cover(step.broadcasts).Between(until - step.forward, until));
                     })->median;
  std::map<std::string, TracedBroadcast> before;
  for (const StepFacts& step : steps) {
    for (const auto& [collective, bytes] : step.before) {
      TracedBroadcast& each = before[collective];
      each.collective = collective;
      each.a_step += 1.0 / static_cast<double>(steps.size());
      each.bytes_a_step += bytes / static_cast<double>(steps.size());
    }
  }
  for (const auto& [name, each] : before) facts.before_backward.push_back(each);
}

}  // namespace

TraceFacts FactsOf(const Trace& trace, const std::string& file, const TraceOptions& options) {
  return FactsMaker(trace, file, options).Make();
}

TraceFacts ReadTraceFacts(const std::string& file, const TraceOptions& options) {
  return FactsOf(ReadTrace(file), file, options);
}

std::vector<TraceFacts> ReadTraceFacts(const std::vector<std::string>& files,
                                       const TraceOptions& options) {
  std::vector<TraceFacts> ranks;
  for (const std::string& file : files) ranks.push_back(ReadTraceFacts(file, options));
  if (static_cast<int>(ranks.size()) == ranks.front().world) {
    for (TraceFacts& each : ranks) std::erase(each.notes, kWaitingNote);
  }
  return ranks;
}

TransferFacts TransfersOf(const std::vector<TraceFacts>& ranks) {
  TransferFacts made;
  const TraceFacts& first = ranks.front();
  const auto fail = [&](const TraceFacts& other, const std::string& what) {
    SPARFUSE_THROW(kConfig, fmt::format("{} and {}: {}", first.file, other.file, what));
  };
  std::map<int, const TraceFacts*> by_rank;
  for (const TraceFacts& each : ranks) {
    const auto [there, is_new] = by_rank.try_emplace(each.rank, &each);
    if (!is_new) {
      SPARFUSE_THROW(kConfig, fmt::format("{} and {} are both of rank {}: expected a file a rank",
                                          there->second->file, each.file, each.rank));
    }
    if (each.world != first.world)
      fail(each, fmt::format("worlds of {} and {} ranks: expected files of one training",
                             first.world, each.world));
    if (each.steps_used != first.steps_used) {
      fail(each, fmt::format("steps {} and {}: expected the same",
                             fmt::join(first.steps_used, ", "), fmt::join(each.steps_used, ", ")));
    }
    if (each.exchanges.size() != first.exchanges.size()) {
      fail(each, fmt::format("{} and {} exchanges: expected as many in each file",
                             first.exchanges.size(), each.exchanges.size()));
    }
    for (std::size_t i = 0; i < each.exchanges.size(); ++i) {
      const TracedExchange &here = each.exchanges[i], &there_too = first.exchanges[i];
      const bool same = here.elements == there_too.elements && here.group == there_too.group &&
                        here.collective == there_too.collective &&
                        here.sequence == there_too.sequence;
      if (!same) {
        fail(each, fmt::format("exchange {} has {} and {} elements: expected the same exchanges in "
                               "the same order",
                               i, there_too.elements.value_or(0), here.elements.value_or(0)));
      }
    }
  }
  for (const auto& [rank, facts] : by_rank) made.ranks.push_back(rank);
  for (std::size_t i = 0; i < first.exchanges.size(); ++i) {
    const TracedExchange& exchange = first.exchanges[i];
    std::vector<double> shortest = exchange.us_by_step;
    for (const TraceFacts& each : ranks) {
      for (std::size_t s = 0; s < shortest.size(); ++s)
        shortest[s] = std::min(shortest[s], each.exchanges[i].us_by_step[s]);
    }
    made.exchanges.push_back({exchange.collective, exchange.elements.value_or(0),
                              exchange.bytes.value_or(0), *SpreadOf(shortest),
                              exchange.ranks.value_or(first.world)});
  }
  return made;
}

}  // namespace sparfuse::harness
