#include "harness/traces/traced_exchanges.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "harness/statistics/statistics.hpp"
#include "harness/traces/collectives.hpp"

namespace sparfuse::harness {

namespace {

// The exchange at position `i` of each step.
TracedExchange ExchangeAt(const std::vector<StepFacts>& steps, std::size_t i) {
  // The profiler leaves out the size of an exchange now and then.
  const auto sized = std::ranges::find_if(
      steps, [i](const StepFacts& step) { return step.exchanges[i].elements != kNoId; });
  const StepExchange& exchange = (sized == steps.end() ? steps.front() : *sized).exchanges[i];
  TracedExchange made;
  made.collective = exchange.collective;
  if (exchange.elements != kNoId) made.elements = exchange.elements;
  made.dtype = exchange.dtype;
  if (exchange.ranks >= 0) made.ranks = exchange.ranks;
  if (*exchange.group) made.group = exchange.group;
  made.kernel = exchange.kernel;
  if (exchange.sequence != kNoId) made.sequence = exchange.sequence;
  std::vector<double> begins, ends;
  for (const StepFacts& step : steps) {
    const TraceEvent& event = *step.exchanges[i].event;
    made.us_by_step.push_back(Us(event.end - event.begin));
    begins.push_back(Us(event.begin - step.origin));
    ends.push_back(Us(event.end - step.origin));
  }
  made.us = *SpreadOf(made.us_by_step);
  made.begin_us = Median(begins);
  made.end_us = Median(ends);
  const std::optional<int> size = BytesOfType(made.dtype);
  if (made.elements && size) {
    made.bytes = static_cast<double>(*made.elements) * *size;
    if (made.ranks && *made.ranks > 1 && made.us.low > 0) {
      const double n = static_cast<double>(*made.ranks);
      made.bus_gbytes_per_s_at_low = *made.bytes * 2 * (n - 1) / n / made.us.low / 1e3;
    }
  }
  return made;
}

std::vector<TracedExchange> ExchangesOf(const std::vector<StepFacts>& steps,
                                        std::vector<std::string>& notes) {
  std::vector<TracedExchange> made;
  const StepFacts& first = steps.front();
  for (const StepFacts& step : steps) {
    const bool same = std::ranges::equal(
        step.exchanges, first.exchanges, [](const StepExchange& a, const StepExchange& b) {
          return a.elements == b.elements || a.elements == kNoId || b.elements == kNoId;
        });
    if (same) continue;
    notes.push_back(fmt::format("{} and {} have other exchanges ({} and {}): none is taken",
                                first.window->name, step.window->name, first.exchanges.size(),
                                step.exchanges.size()));
    return made;
  }
  for (std::size_t i = 0; i < first.exchanges.size(); ++i) made.push_back(ExchangeAt(steps, i));
  return made;
}

std::int64_t ElementsOf(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The number of neighbouring tensors, in ready order, whose elements make each exchange; none
// unless they make all of them.
std::vector<std::size_t> TensorsByExchange(const Trace& trace,
                                           const std::vector<Accumulation>& tensors,
                                           const std::vector<TracedExchange>& exchanges) {
  std::vector<std::size_t> counts;
  std::size_t at = 0;
  for (const TracedExchange& each : exchanges) {
    const std::size_t from = at;
    std::int64_t sum = 0;
    while (at < tensors.size() && sum < each.elements.value_or(0)) {
      const auto shape = ShapeOf(trace, tensors[at]);
      if (!shape) return {};
      sum += ElementsOf(*shape);
      ++at;
    }
    if (!each.elements || sum != *each.elements) return {};
    counts.push_back(at - from);
  }
  return at == tensors.size() ? counts : std::vector<std::size_t>();
}

// DDP calls an exchange for each bucket, and copies a bucket's tensors back in their order. So sums
// of tensors' elements, in ready order, tell how many copies belong to each exchange.
void AddHostOfExchanges(const Trace& trace, const std::vector<StepFacts>& steps,
                        std::vector<TracedExchange>& exchanges) {
  const std::vector<Accumulation>& tensors = steps.front().accumulations;
  const std::vector<std::size_t> counts = TensorsByExchange(trace, tensors, exchanges);
  if (counts.empty()) return;
  const bool all = std::ranges::all_of(steps, [&](const StepFacts& step) {
    return step.calls.size() == exchanges.size() && step.copies_back.size() == tensors.size();
  });
  if (!all) return;
  for (const StepFacts& step : steps) {
    auto copy = step.copies_back.begin();
    for (std::size_t i = 0; i < exchanges.size(); ++i) {
      const auto end = copy + static_cast<std::ptrdiff_t>(counts[i]);
      exchanges[i].host_us_by_step.push_back(Us(step.calls[i]));
      exchanges[i].copies_us_by_step.push_back(Us(std::accumulate(copy, end, TraceTime{0})));
      copy = end;
    }
  }
}

}  // namespace

void AddExchanges(const TraceIndex& index, const std::vector<StepFacts>& steps, TraceFacts& facts) {
  facts.exchanges = ExchangesOf(steps, facts.notes);
  AddHostOfExchanges(index.trace(), steps, facts.exchanges);
  if (const int after = steps.front().after_backward; after > 0) {
    facts.notes.push_back(fmt::format(
        "{} all-reduce{} of a step {} called after backward: none of backward's exchanges", after,
        after == 1 ? "" : "s", after == 1 ? "is" : "are"));
  }
  if (const int whole = steps.front().of_integers; whole > 0) {
    facts.notes.push_back(
        fmt::format("{} all-reduce{} of a step {} of integers, as DDP's map of used parameters: "
                    "none of its exchanges",
                    whole, whole == 1 ? "" : "s", whole == 1 ? "is" : "are"));
  }
  if (const int after = steps.front().broadcasts_after; after > 0) {
    facts.notes.push_back(
        fmt::format("{} broadcast{} of a step {} after backward began, of a sharded optimizer's "
                    "parameters or of buffers before a validation: none of its exchanges",
                    after, after == 1 ? "" : "s", after == 1 ? "begins" : "begin"));
  }
  if (facts.exchanges.empty()) return;
  facts.exposed_us = OverSteps(steps, [&](const StepFacts& step) {
    TraceTime last = step.end_of_backward;
    for (const StepExchange& each : step.exchanges) last = std::max(last, each.event->end);
    return One(last - step.end_of_backward);
  });
  const bool beside = std::ranges::any_of(steps, [](const StepFacts& s) { return s.beside; });
  if (index.OfDevice() && !beside) {
    facts.notes.push_back(
        "no exchange runs beside a kernel of backward, though each was launched "
        "before its end: a queue or a stream holds them back");
  }
  if (facts.world > 1) facts.notes.push_back(kWaitingNote);
}

void AddBroadcasts(const std::vector<StepFacts>& steps, TraceFacts& facts) {
  facts.buffers_us = OverSteps(steps, [&](const StepFacts& step) {
                       const TraceTime until = step.origin;
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

}  // namespace sparfuse::harness
