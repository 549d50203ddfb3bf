// Finds the facts of a step that CUDA or ROCm devices compute, with collectives in kernels.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/traces/collectives.hpp"
#include "harness/traces/traced_step.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::size_t kTenth = 10, kHundredth = 100;
constexpr double kLargeDeviceCopy = 64 << 20, kLargeHostCopy = 8 << 20;

StepExchange ExchangeOf(const TraceIndex& index, const DeviceWork& work) {
  const Trace& trace = index.trace();
  StepExchange made{.event = work.event, .kernel = trace.Name(*work.event).c_str()};
  const auto take = [&](const TraceEvent& event) {
    const StoredExtra* extra = trace.Stored(event);
    if (extra == nullptr || extra->collective == kNoName || *made.collective) return;
    made.collective = trace.names[extra->collective].c_str();
    made.dtype = trace.names[extra->dtype].c_str();
    made.group = trace.names[extra->group].c_str();
    made.elements = extra->elements;
    made.ranks = extra->ranks;
    made.sequence = extra->sequence;
  };
  take(*work.event);
  if (const TraceEvent* comms = index.Comms(work.event->external_id)) take(*comms);
  if (!*made.collective) made.collective = CollectiveOfKernel(made.kernel);
  return made;
}

void AddCollectives(const TraceIndex& index, StepFacts& step) {
  const StepWindow& window = *step.window;
  for (const DeviceWork& work :
       TraceIndex::Launched(index.collectives(), window.begin, window.end)) {
    StepExchange made = ExchangeOf(index, work);
    if (!*made.collective) {
      index.Fail(
          fmt::format("{}: the kernel {} has no field \"Collective name\", and its own name has "
                      "none: expected a trace of a later PyTorch",
                      window.name, made.kernel));
    }
    if (work.launched() < step.backward_begin) {
      step.before.emplace_back(made.collective, BytesOf(made));
      if (IsBroadcast(made.collective)) step.broadcasts.emplace_back(work.begin(), work.end());
    } else if (work.launched() <= step.backward_end) {
      step.exchanges.push_back(made);
    } else {
      step.broadcasts_after += IsBroadcast(made.collective);
    }
  }
}

TraceTime Uncovered(TraceTime whole, std::vector<TraceSpan> spans, TraceTime until) {
  return whole - Cover(std::move(spans)).Until(until);
}

// The compute work of a step, in order of launch, with what was done before each launch.
class StepWork {
 public:
  // `forward_end`: of the last kernel of forward.
  StepWork(const StepFacts& step, std::span<const DeviceWork> works, TraceTime forward_end)
      : works_(works), done_{forward_end}, hooks_{0} {
    std::map<std::uint32_t, std::vector<TraceSpan>> tails;  // by thread
    for (const Accumulation& each : step.accumulations) {
      if (each.has_tail)
        tails[each.event->thread].emplace_back(each.event->end, each.evaluation_end);
    }
    std::map<std::uint32_t, Cover> covers;
    for (auto& [thread, spans] : tails) covers.try_emplace(thread, std::move(spans));
    for (const DeviceWork& work : works) {
      const auto cover = covers.find(work.launch->thread);
      const bool hook =
          cover != covers.end() && cover->second.Between(work.launched(), work.launched() + 1) > 0;
      is_hook_.push_back(hook);
      done_.push_back(done_.size() == 1 ? work.end() : std::max(done_.back(), work.end()));
      hooks_.push_back(hooks_.back() + (hook ? work.ns() : 0));
    }
  }

  // The latest end of all that was launched before.
  TraceTime Done(TraceTime launch) const { return done_[Before(launch)]; }
  // The time of the kernels of hooks that were launched before.
  TraceTime Hooks(TraceTime launch) const { return hooks_[Before(launch)]; }
  bool IsHook(const DeviceWork& work) const {
    return is_hook_[static_cast<std::size_t>(&work - works_.data())];
  }

 private:
  std::size_t Before(TraceTime launch) const {
    return static_cast<std::size_t>(
        std::ranges::lower_bound(works_, launch, {}, &DeviceWork::launched) - works_.begin());
  }

  std::span<const DeviceWork> works_;
  std::vector<TraceTime> done_, hooks_;
  std::vector<bool> is_hook_;
};

// Lags, idle times and kernels of backward.
void AddBackward(const TraceIndex& index, const StepWork& all, StepFacts& step) {
  const TraceTime from = step.origin, to = step.end_of_backward;
  std::vector<TraceSpan> busy, exchanging, without_hooks;
  for (const StepExchange& each : step.exchanges)
    exchanging.emplace_back(each.event->begin, each.event->end);
  const Cover exchanges(std::move(exchanging));
  for (const DeviceWork& work :
       TraceIndex::Launched(index.compute(), step.backward_begin,
                            std::min(step.backward_end + 1, step.window->end))) {
    step.lags_us.push_back(Us(work.begin() - work.launched()));
    const TraceSpan span(std::max(work.begin(), from), std::min(work.end(), to));
    busy.push_back(span);
    const TraceTime shared = exchanges.Between(work.begin(), work.end()), whole = work.ns();
    step.beside = step.beside || shared > 0;
    if (all.IsHook(work)) continue;
    without_hooks.push_back(span);
    if (!index.options().keep_kernels) continue;
    step.kernels.push_back(
        {index.trace().Name(*work.event), Us(whole),
         whole > 0 ? static_cast<double>(shared) / static_cast<double>(whole) : 0.0});
  }
  if (to > from) {
    step.idle_share = static_cast<double>(Uncovered(to - from, std::move(busy), to)) /
                      static_cast<double>(to - from);
  }
  const Cover computing(std::move(without_hooks));
  step.idle_backward = std::max<TraceTime>(0, step.backward - computing.Until(to));
  for (Accumulation& each : step.accumulations) {
    const TraceTime end = all.Done(each.event->end);
    each.idle_before = std::max<TraceTime>(0, each.ready - computing.Until(end));
  }
}

void AddUpdate(const TraceIndex& index, StepFacts& step) {
  const StepWindow& window = *step.window;
  std::optional<TraceTime> begin, end;
  std::vector<TraceSpan> updating;
  for (const TraceEvent* optimizer :
       index.Within(EventKind::kOptimizer, window.begin, window.end)) {
    for (const DeviceWork& work : TraceIndex::Launched(index.compute(), optimizer->begin,
                                                       std::min(optimizer->end + 1, window.end))) {
      begin = std::min(begin.value_or(work.begin()), work.begin());
      end = std::max(end.value_or(work.end()), work.end());
      updating.emplace_back(work.begin(), work.end());
    }
  }
  if (!begin) return;
  step.update = *end - *begin;
  step.idle_update = Uncovered(*step.update, std::move(updating), *end);
}

}  // namespace

void AddOnDevice(const TraceIndex& index, StepFacts& step) {
  AddCollectives(index, step);
  const StepWindow& window = *step.window;
  const auto works = TraceIndex::Launched(index.compute(), window.begin, window.end);
  const auto forward =
      TraceIndex::Launched(index.compute(), step.first_forward, step.backward_begin);
  if (works.empty() || forward.empty()) {
    index.Fail(
        fmt::format("{}: no kernel was launched in its forward pass: expected a trace that began "
                    "before the step",
                    window.name));
  }
  const TraceTime first = std::ranges::min(forward, {}, &DeviceWork::begin).begin();
  const TraceTime forward_end = std::ranges::max(forward, {}, &DeviceWork::end).end();
  step.first_kernel = std::ranges::min(works, {}, &DeviceWork::begin).begin();
  step.forward = forward_end - first;
  step.origin = forward_end;
  std::vector<TraceSpan> of_forward;
  for (const DeviceWork& work : forward) of_forward.emplace_back(work.begin(), work.end());
  step.idle_forward = Uncovered(step.forward, std::move(of_forward), forward_end);
  const StepWork all(step, works, forward_end);
  for (Accumulation& each : step.accumulations) {
    const TraceTime end = each.event->end;
    each.ready = all.Done(end) - forward_end - all.Hooks(end);
  }
  step.end_of_backward = all.Done(step.backward_end);
  step.backward = step.end_of_backward - forward_end - all.Hooks(step.backward_end);
  AddBackward(index, all, step);
  AddUpdate(index, step);
}

TracedDevice DeviceFacts(const TraceIndex& index) {
  TracedDevice facts;
  std::vector<double> us, memory, host;
  for (const DeviceWork& work : index.compute()) {
    if (work.event->kind == EventKind::kKernel) {
      us.push_back(Us(work.ns()));
      continue;
    }
    const StoredExtra* extra = index.trace().Stored(*work.event);
    const std::string& name = index.trace().Name(*work.event);
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (extra == nullptr || extra->bytes == 0 || work.ns() == 0) continue;
    const double rate = extra->bytes / static_cast<double>(work.ns());  // GB/s
    if (has("DtoD") && extra->bytes >= kLargeDeviceCopy) memory.push_back(2 * rate);
    if ((has("DtoH") || has("HtoD")) && has("Pinned") && extra->bytes >= kLargeHostCopy)
      host.push_back(rate);
  }
  if (us.empty()) index.Fail("no kernel of computation has a launch: expected a trace of training");
  std::ranges::sort(us);
  facts.kernel_us = *SpreadOf(us);
  facts.kernel_us_tenth = us[us.size() / kTenth];
  facts.kernel_us_hundredth = us[us.size() / kHundredth];
  facts.memory_gbytes_per_s = SpreadOf(memory);
  facts.host_link_gbytes_per_s = SpreadOf(host);
  return facts;
}

}  // namespace sparfuse::harness
