#include "harness/store/step_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "harness/files/durable_file.hpp"
#include "harness/files/npy.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

struct Duration {
  const char* name;
  double StepRecord::*member;
};
constexpr std::array kDurations = {
    Duration{"step_seconds", &StepRecord::step_seconds},
    Duration{"forward_seconds", &StepRecord::forward_seconds},
    Duration{"backward_seconds", &StepRecord::backward_seconds},
    Duration{"sparsify_seconds", &StepRecord::sparsify_seconds},
    Duration{"exposed_communication_seconds", &StepRecord::exposed_communication_seconds},
    Duration{"decompress_seconds", &StepRecord::decompress_seconds},
    Duration{"update_seconds", &StepRecord::update_seconds},
    Duration{"outer_seconds", &StepRecord::outer_seconds},
    Duration{"align_wait_seconds", &StepRecord::align_wait_seconds},
};

struct Counter {
  const char* name;
  std::uint64_t StepRecord::*member;
  const char* unit;
};
constexpr std::array kCounters = {
    Counter{"payload_bytes", &StepRecord::payload_bytes, "bytes"},
    Counter{"sent_bytes", &StepRecord::sent_bytes, "bytes"},
    Counter{"received_bytes", &StepRecord::received_bytes, "bytes"},
    Counter{"messages_sent", &StepRecord::messages_sent, "messages"},
    Counter{"selected", &StepRecord::selected, "elements"},
    Counter{"summed", &StepRecord::summed, "elements"},
    Counter{"returned", &StepRecord::returned, "elements"},
    Counter{"tensors_missing", &StepRecord::tensors_missing, "tensors"},
    Counter{"exchanges", &StepRecord::exchanges, "exchanges"},
};

double AccountedSeconds(const StepRecord& record) {
  return record.forward_seconds + record.backward_seconds + record.sparsify_seconds +
         record.exposed_communication_seconds + record.decompress_seconds + record.update_seconds +
         record.outer_seconds;
}

// Only methods with an outer optimizer have outer_seconds.
bool IsThere(const Duration& duration, const StepLog& log) {
  if (duration.member != &StepRecord::outer_seconds) return true;
  return std::ranges::any_of(log, [](const auto& rank) {
    return std::ranges::any_of(
        rank, [](const LoggedStep& step) { return step.record.outer_seconds > 0; });
  });
}

// Consecutive measured steps of every rank that end with a synchronisation: [begin, end).
struct Window {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};

// The whole windows, or all if none is whole, as a trial may end before its first window does.
std::vector<Window> MeasuredWindows(const std::vector<LoggedStep>& steps, int every) {
  std::vector<Window> windows;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (!steps[s].measured) continue;
    const bool goes_on = every > 1 && !windows.empty() && windows.back().end == s &&
                         steps[s].step % every != 0 && steps[s].round == steps[s - 1].round;
    if (!goes_on) windows.push_back({s, s});
    windows.back().end = s + 1;
  }
  const auto is_whole = [every](const Window& window) {
    return window.size() == static_cast<std::size_t>(every);
  };
  if (std::ranges::any_of(windows, is_whole)) std::erase_if(windows, std::not_fn(is_whole));
  return windows;
}

// The durations of a window's mean step.
StepRecord MeanStep(const std::vector<LoggedStep>& steps, const Window& window) {
  StepRecord mean;
  for (const Duration& duration : kDurations) {
    double sum = 0;
    for (std::size_t s = window.begin; s < window.end; ++s) sum += steps[s].record.*duration.member;
    mean.*duration.member = sum / static_cast<double>(window.size());
  }
  return mean;
}

StepRecord MeanStepOfSlowest(const StepLog& log, const Window& window) {
  StepRecord slowest = MeanStep(log.front(), window);
  for (const auto& rank : log) {
    const StepRecord mean = MeanStep(rank, window);
    if (mean.step_seconds > slowest.step_seconds) slowest = mean;
  }
  return slowest;
}

// The bytes that the busiest rank of a window served over the average rank's; 0 if none served.
double ServedImbalance(const StepLog& log, const Window& window) {
  double most = 0;
  double all = 0;
  for (const auto& rank : log) {
    double served = 0;
    for (std::size_t s = window.begin; s < window.end; ++s)
      served += static_cast<double>(rank[s].record.served);
    most = std::max(most, served);
    all += served;
  }
  return all == 0 ? 0 : most * static_cast<double>(log.size()) / all;
}

// A column with of(row) for each row.
template <class Row, class Of>
auto Collect(const std::vector<Row>& rows, const Of& of) {
  std::vector<decltype(of(rows.front()))> values;
  values.reserve(rows.size());
  for (const Row& row : rows) values.push_back(of(row));
  return values;
}

// Seconds of the shortest exchange of any rank, or infinity.
double ShortestExchange(const TracedStep& traced) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& spans : traced.by_rank) {
    for (const Span& span : spans) {
      const double seconds = span.end_seconds - span.begin_seconds;
      if (span.kind == SpanKind::kExchange && seconds > 0) shortest = std::min(shortest, seconds);
    }
  }
  return shortest;
}

void WriteTrace(const std::filesystem::path& directory, const TracedStep& traced) {
  const double uncertainty = traced.clock_uncertainty_seconds;
  if (uncertainty > 0 && uncertainty >= ShortestExchange(traced) / 2) {
    for (std::size_t r = 0; r < traced.by_rank.size(); ++r) {
      WriteFileDurably(directory / fmt::format("trace-rank{}.json", r),
                       ChromeTrace({traced.by_rank[r]}, static_cast<int>(r)));
    }
    return;
  }
  auto by_rank = traced.by_rank;
  if (!traced.began_seconds.empty()) {
    const double first = std::ranges::min(traced.began_seconds);
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      for (Span& span : by_rank[r]) {
        span.begin_seconds += traced.began_seconds[r] - first;
        span.end_seconds += traced.began_seconds[r] - first;
      }
    }
  }
  WriteFileDurably(directory / "trace.json", ChromeTrace(by_rank, 0, uncertainty));
}

}  // namespace

MetricValues MetricsOf(const StepLog& log, const StepLogContext& context) {
  std::vector<StepRecord> slowest;  // slowest rank of each measured window
  double measured = 0;
  double loss = 0;
  double residual_norm = 0;
  double imbalance = 0;
  double loader_wait = 0;
  std::array<double, kCounters.size()> sums{};
  for (const Window& window : MeasuredWindows(log.front(), context.every)) {
    for (std::size_t s = window.begin; s < window.end; ++s) {
      double longest_wait = 0;
      for (const auto& rank : log) {
        for (std::size_t c = 0; c < kCounters.size(); ++c) {
          sums[c] += static_cast<double>(rank[s].record.*kCounters[c].member);
        }
        residual_norm += rank[s].record.residual_norm;
        longest_wait = std::max(longest_wait, rank[s].loader_wait_seconds);
        loss += rank[s].loss;
        ++measured;
      }
      loader_wait += longest_wait;
    }
    slowest.push_back(MeanStepOfSlowest(log, window));
    imbalance += ServedImbalance(log, window);
  }
  MetricValues metrics;
  if (slowest.empty()) return metrics;
  const auto median = [&](const std::function<double(const StepRecord&)>& of) {
    return Median(Collect(slowest, of));
  };
  const auto add = [&](const char* name, double value, std::string unit) {
    metrics[name] = MetricValue(value, std::move(unit));
    return value;
  };
  std::map<std::string_view, double> numbers;
  for (const Duration& duration : kDurations) {
    if (!IsThere(duration, log)) continue;
    numbers[duration.name] =
        add(duration.name,
            median([&](const StepRecord& record) { return record.*duration.member; }), "seconds");
  }
  add("other_seconds", median([](const StepRecord& record) {
        return record.step_seconds - AccountedSeconds(record);
      }),
      "seconds");
  const double utilisation = median([](const StepRecord& record) {
    const double computes =
        record.forward_seconds + record.backward_seconds + record.update_seconds;
    return record.step_seconds > 0 ? computes / record.step_seconds : 0;
  });
  if (utilisation > 0) add("compute_utilisation", utilisation, "");  // only if parts are recorded
  if (context.every > 1) add("window_seconds", context.every * numbers["step_seconds"], "seconds");
  add("throughput", context.units_per_step / numbers["step_seconds"], context.unit + "/s");
  for (std::size_t c = 0; c < kCounters.size(); ++c) {
    if (kCounters[c].member == &StepRecord::tensors_missing && !context.knows_missing) continue;
    numbers[kCounters[c].name] = add(kCounters[c].name, sums[c] / measured, kCounters[c].unit);
  }
  if (context.every > 1) add("window_bytes", context.every * numbers["sent_bytes"], "bytes");
  add("achieved_density", numbers["selected"] / context.dense_elements, "");
  if (const double payload = numbers["payload_bytes"]; payload > 0)
    add("sent_over_payload", numbers["sent_bytes"] / payload, "");
  // gamma(P) of collectives that sum on the way.
  if (const double summed = numbers["summed"]; summed > 0)
    add("densification", summed / numbers["selected"], "");
  if (loader_wait > 0) {
    const double steps = measured / static_cast<double>(log.size());
    add("loader_wait_seconds", loader_wait / steps, "seconds");
  }
  if (imbalance > 0) add("imbalance", imbalance / static_cast<double>(slowest.size()), "");
  if (context.knows_missing) {  // a model moves no data and has neither metric
    add("residual_norm", residual_norm / measured, "");
    add("loss", loss / measured, "nats");
  }
  return metrics;
}

double SentBytesBefore(const StepLog& log, double step) {
  double sum = 0;
  for (const std::vector<LoggedStep>& rank : log) {
    for (const LoggedStep& logged : rank) {
      if (static_cast<double>(logged.step) < step)
        sum += static_cast<double>(logged.record.sent_bytes);
    }
  }
  return log.empty() ? 0 : sum / static_cast<double>(log.size());
}

std::vector<double> RoundSeconds(const StepLog& log, int every) {
  std::map<std::int32_t, std::vector<double>> rounds;
  for (const Window& window : MeasuredWindows(log.front(), every)) {
    const std::int32_t round = log.front()[window.begin].round;
    if (round > 0) rounds[round].push_back(MeanStepOfSlowest(log, window).step_seconds);
  }
  std::vector<double> medians;
  for (const auto& [round, seconds] : rounds) medians.push_back(Median(seconds));
  return medians;
}

std::optional<std::string> UnitOfStepColumn(std::string_view column) {
  for (const Duration& duration : kDurations) {
    if (column == duration.name) return "seconds";
  }
  for (const Counter& counter : kCounters) {
    if (column == counter.name) return counter.unit;
  }
  if (column == "loader_wait_seconds") return "seconds";
  if (column == "loss") return "nats";
  for (const char* plain :
       {"step", "rank", "measured", "round", "achieved_density", "residual_norm"}) {
    if (column == plain) return "";
  }
  return std::nullopt;
}

void WriteSteps(const std::filesystem::path& directory, const StepLog& log,
                const StepLogContext& context, SeriesByFile& series) {
  struct Row {
    std::int64_t rank;
    const LoggedStep* logged;
  };
  std::vector<Row> rows;
  for (std::size_t r = 0; r < log.size(); ++r) {
    for (const LoggedStep& logged : log[r]) rows.push_back({static_cast<std::int64_t>(r), &logged});
  }
  NpyTable table("every step of every rank");
  const auto add = [&](const char* name, const auto& of) {
    table.AddColumn(name, UnitOfStepColumn(name).value(), Collect(rows, of));
  };
  add("step", [](const Row& row) { return row.logged->step; });
  add("rank", [](const Row& row) { return row.rank; });
  add("measured", [](const Row& row) { return row.logged->measured; });
  add("round", [](const Row& row) { return std::int64_t{row.logged->round}; });
  add("loss", [](const Row& row) { return row.logged->loss; });
  if (std::ranges::any_of(rows, [](const Row& row) { return row.logged->loader_wait_seconds > 0; }))
    add("loader_wait_seconds", [](const Row& row) { return row.logged->loader_wait_seconds; });
  for (const Duration& duration : kDurations) {
    if (!IsThere(duration, log)) continue;
    add(duration.name, [&](const Row& row) { return row.logged->record.*duration.member; });
  }
  for (const Counter& counter : kCounters) {
    add(counter.name, [&](const Row& row) {
      return static_cast<std::int64_t>(row.logged->record.*counter.member);
    });
  }
  add("achieved_density", [&](const Row& row) {
    return static_cast<double>(row.logged->record.selected) / context.dense_elements;
  });
  add("residual_norm", [](const Row& row) { return row.logged->record.residual_norm; });
  table.Write(directory / "steps.npy");
  series["steps.npy"] = SeriesOf(table);
}

LoggedStep LoggedStepOf(const std::function<double(const char* column)>& value) {
  LoggedStep logged;
  // A damaged file may hold a number outside of the type's range, whose conversion is undefined.
  const auto whole = [&](const char* column) {
    const double number = value(column);
    return std::abs(number) < 9e15 ? static_cast<std::int64_t>(number) : 0;
  };
  logged.step = whole("step");
  logged.measured = value("measured") != 0;
  logged.round = static_cast<std::int32_t>(
      std::clamp<std::int64_t>(whole("round"), 0, std::numeric_limits<std::int32_t>::max()));
  logged.loss = value("loss");
  logged.loader_wait_seconds = value("loader_wait_seconds");
  for (const Duration& duration : kDurations) logged.record.*duration.member = value(duration.name);
  for (const Counter& counter : kCounters)
    logged.record.*counter.member =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, whole(counter.name)));
  logged.record.residual_norm = value("residual_norm");
  return logged;
}

namespace {

// Joins the last steps of a window: each rank's spans follow one another.
TracedStep LastWindow(std::span<const TracedStep> steps, std::size_t every) {
  steps = steps.last(std::min(every, steps.size()));
  TracedStep window = steps.front();
  for (const TracedStep& step : steps.subspan(1)) {
    for (std::size_t r = 0; r < window.by_rank.size() && r < step.began_seconds.size(); ++r) {
      const double behind = step.began_seconds[r] - window.began_seconds[r];
      for (Span span : step.by_rank[r]) {
        span.begin_seconds += behind;
        span.end_seconds += behind;
        window.by_rank[r].push_back(std::move(span));
      }
    }
  }
  return window;
}

}  // namespace

void WriteSpans(const std::filesystem::path& directory, std::span<const TracedStep> steps,
                SeriesByFile& series, int every) {
  struct Row {
    std::int64_t step, rank;
    const Span* span;
  };
  std::vector<Row> rows;
  for (const TracedStep& traced : steps) {
    for (std::size_t r = 0; r < traced.by_rank.size(); ++r) {
      for (const Span& span : traced.by_rank[r]) {
        rows.push_back({traced.step, static_cast<std::int64_t>(r), &span});
      }
    }
  }
  NpyTable table(fmt::format("the last {} measured step(s) of the first {} rank(s)", steps.size(),
                             steps.empty() ? 0 : steps.back().by_rank.size()));
  const auto add = [&](const char* name, const char* unit, const auto& of) {
    table.AddColumn(name, unit, Collect(rows, of));
  };
  add("step", "", [](const Row& row) { return row.step; });
  add("rank", "", [](const Row& row) { return row.rank; });
  add("kind", "", [](const Row& row) { return std::string(SpanKindName(row.span->kind)); });
  add("lane", "", [](const Row& row) { return row.span->lane; });
  add("label", "", [](const Row& row) { return row.span->label; });
  add("begin_seconds", "seconds", [](const Row& row) { return row.span->begin_seconds; });
  add("end_seconds", "seconds", [](const Row& row) { return row.span->end_seconds; });
  add("bytes", "bytes", [](const Row& row) { return static_cast<std::int64_t>(row.span->bytes); });
  table.Write(directory / "spans.npy");
  series["spans.npy"] = SeriesOf(table);
  if (!steps.empty()) WriteTrace(directory, LastWindow(steps, static_cast<std::size_t>(every)));
}

}  // namespace sparfuse::harness
