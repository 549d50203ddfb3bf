#include "harness/traces/trace_index.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "harness/traces/collectives.hpp"

namespace sparfuse::harness {

namespace {

bool IsOperator(EventKind kind) {
  return kind == EventKind::kComms || kind == EventKind::kCall || kind == EventKind::kMulOut ||
         kind == EventKind::kCopyBack || kind == EventKind::kAccumulate ||
         kind == EventKind::kOperator;
}

// Takes out what lies within an earlier event of its thread: ZeroRedundancyOptimizer.step calls the
// step of the optimizer that it wraps.
void KeepOutermost(TraceIndex::Events& events) {
  std::unordered_map<std::uint32_t, TraceTime> until;
  std::erase_if(events, [&](const TraceEvent* each) {
    const auto [last, is_new] = until.try_emplace(each->thread, each->end);
    if (is_new) return false;
    const bool within = each->end <= last->second;
    last->second = std::max(last->second, each->end);
    return within;
  });
}

// Events come in order of begin; the profiler numbers most in that order, too.
void SortById(std::vector<std::pair<std::int64_t, const TraceEvent*>>& all) {
  const auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (!std::ranges::is_sorted(all, earlier)) std::ranges::stable_sort(all, earlier);
}

}  // namespace

TraceIndex::TraceIndex(const Trace& trace, const std::string& file, const TraceOptions& options)
    : trace_(trace), file_(file), options_(options) {
  Reserve();
  Sort();
  FindWindows();
}

void TraceIndex::Fail(const std::string& what) const {
  SPARFUSE_THROW(kConfig, fmt::format("{}: {}", file_, what));
}

const TraceIndex::Events& TraceIndex::Operators(std::uint32_t thread) const {
  static const Events kNone;
  const auto found = operators_.find(thread);
  return found == operators_.end() ? kNone : found->second;
}

const TraceEvent* TraceIndex::Find(const ById& all, std::int64_t id) {
  if (id == kNoId) return nullptr;
  const auto found = std::ranges::lower_bound(all, id, {}, &ById::value_type::first);
  return found == all.end() || found->first != id ? nullptr : found->second;
}

std::span<const TraceEvent* const> TraceIndex::Within(const Events& events, TraceTime from,
                                                      TraceTime to) {
  const auto first = std::ranges::lower_bound(events, from, {}, &TraceEvent::begin);
  const auto last = std::ranges::lower_bound(first, events.end(), to, {}, &TraceEvent::begin);
  return {first, last};
}

std::span<const DeviceWork> TraceIndex::Launched(const std::vector<DeviceWork>& works,
                                                 TraceTime from, TraceTime to) {
  const auto first = std::ranges::lower_bound(works, from, {}, &DeviceWork::launched);
  const auto last = std::ranges::lower_bound(first, works.end(), to, {}, &DeviceWork::launched);
  return {first, last};
}

// Lists that grow would take up to three times their size for a moment.
void TraceIndex::Reserve() {
  std::array<std::size_t, std::tuple_size_v<decltype(by_kind_)>> kinds{};
  std::unordered_map<std::uint32_t, std::size_t> threads;
  for (const TraceEvent& event : trace_.events) {
    ++kinds[static_cast<std::size_t>(event.kind)];
    if (IsOperator(event.kind)) ++threads[event.thread];
  }
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const auto kind = static_cast<EventKind>(k);
    // Of launches and other operators no list is asked for.
    if (kind != EventKind::kLaunch && kind != EventKind::kOperator) by_kind_[k].reserve(kinds[k]);
  }
  for (const auto& [thread, count] : threads) operators_[thread].reserve(count);
}

void TraceIndex::Sort() {
  ById launches;
  for (const TraceEvent& event : trace_.events) {
    if (IsOperator(event.kind)) operators_[event.thread].push_back(&event);
    if (event.kind == EventKind::kLaunch) {
      launches.emplace_back(event.correlation, &event);
    } else if (event.kind != EventKind::kOperator) {
      by_kind_[static_cast<std::size_t>(event.kind)].push_back(&event);
    }
    if (event.kind == EventKind::kComms && event.external_id != kNoId)
      comms_.emplace_back(event.external_id, &event);
  }
  KeepOutermost(by_kind_[static_cast<std::size_t>(EventKind::kOptimizer)]);
  SortById(launches);
  SortById(comms_);
  FindLaunches(launches);
}

void TraceIndex::FindLaunches(const ById& launches) {
  enum class Sort : std::uint8_t { kUnsorted, kCompute, kCollective };
  std::vector<Sort> sorts(trace_.names.size(), Sort::kUnsorted);
  std::size_t lost = 0, works = 0;
  compute_.reserve(Of(EventKind::kKernel).size() + Of(EventKind::kCopy).size());
  for (const EventKind kind : {EventKind::kKernel, EventKind::kCopy}) {
    works += Of(kind).size();
    for (const TraceEvent* work : Of(kind)) {
      const TraceEvent* launch = Find(launches, work->correlation);
      if (launch == nullptr) {
        ++lost;
        continue;
      }
      Sort& sort = sorts[work->name];
      if (sort == Sort::kUnsorted)
        sort = IsCollectiveKernel(trace_.Name(*work)) ? Sort::kCollective : Sort::kCompute;
      const bool collective = kind == EventKind::kKernel && sort == Sort::kCollective;
      (collective ? collectives_ : compute_).push_back({launch, work});
    }
  }
  if (works > 0 && 2 * lost > works && Of(EventKind::kGraph).empty()) {
    Fail(
        fmt::format("{} of {} kernels have no launch on the host: expected a trace of both "
                    "activities, CPU and CUDA, in one file",
                    lost, works));
  }
  for (std::vector<DeviceWork>* each : {&compute_, &collectives_})
    std::ranges::stable_sort(*each, {}, &DeviceWork::launched);
}

void TraceIndex::FindWindows() {
  const Events& optimizers = Of(EventKind::kOptimizer);
  if (options_.optimizer_steps) {
    if (optimizers.size() < 2) {
      Fail(fmt::format("{} Optimizer.step#: expected two or more for --steps optimizer",
                       optimizers.size()));
    }
    for (std::size_t i = 1; i < optimizers.size(); ++i) {
      const std::string& name = made_names_.emplace_back(fmt::format("optimizer#{}", i));
      windows_.push_back({name, optimizers[i - 1]->end, optimizers[i]->end, optimizers[i]->thread});
    }
    return;
  }
  const Events& steps = Of(EventKind::kStep);
  windows_.reserve(steps.size());
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

}  // namespace sparfuse::harness
