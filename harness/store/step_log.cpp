#include "harness/store/step_log.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "harness/files/columns.hpp"
#include "harness/files/durable_file.hpp"
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
    Counter{"tensors_missing", &StepRecord::tensors_missing, "tensors"},
    Counter{"exchanges", &StepRecord::exchanges, "exchanges"},
};

double AccountedSeconds(const StepRecord& record) {
  return record.forward_seconds + record.backward_seconds + record.sparsify_seconds +
         record.exposed_communication_seconds + record.decompress_seconds + record.update_seconds;
}

nlohmann::json Value(double value, const std::string& unit) {
  return {{"value", value}, {"unit", unit}};
}

}  // namespace

nlohmann::json MetricsOf(const StepLog& log, const StepLogContext& context) {
  std::vector<const LoggedStep*> slowest;  // of each measured step
  double measured = 0;
  double loss = 0;
  double residual_norm = 0;
  std::array<double, kCounters.size()> sums{};
  for (std::size_t s = 0; s < log.front().size(); ++s) {
    if (!log.front()[s].measured) continue;
    const LoggedStep* slow = &log.front()[s];
    for (const auto& rank : log) {
      if (rank[s].record.step_seconds > slow->record.step_seconds) slow = &rank[s];
      for (std::size_t c = 0; c < kCounters.size(); ++c) {
        sums[c] += static_cast<double>(rank[s].record.*kCounters[c].member);
      }
      residual_norm += rank[s].record.residual_norm;
      loss += rank[s].loss;
      ++measured;
    }
    slowest.push_back(slow);
  }
  nlohmann::json metrics;
  if (slowest.empty()) return metrics;
  const auto median = [&](const std::function<double(const StepRecord&)>& of) {
    std::vector<double> values;
    for (const LoggedStep* step : slowest) values.push_back(of(step->record));
    return Median(values);
  };
  for (const Duration& duration : kDurations) {
    metrics[duration.name] =
        Value(median([&](const StepRecord& record) { return record.*duration.member; }), "seconds");
  }
  metrics["other_seconds"] = Value(median([](const StepRecord& record) {
                                     return record.step_seconds - AccountedSeconds(record);
                                   }),
                                   "seconds");
  const double step_seconds = metrics["step_seconds"]["value"];
  metrics["throughput"] = Value(context.units_per_step / step_seconds, context.unit + "/s");
  for (std::size_t c = 0; c < kCounters.size(); ++c) {
    if (kCounters[c].member == &StepRecord::tensors_missing && !context.counts_missing) continue;
    metrics[kCounters[c].name] = Value(sums[c] / measured, kCounters[c].unit);
  }
  metrics["achieved_density"] =
      Value(metrics["selected"]["value"].get<double>() / context.dense_elements, "");
  if (context.counts_missing) {  // what a model that moves no data cannot know
    metrics["residual_norm"] = Value(residual_norm / measured, "");
    metrics["loss"] = Value(loss / measured, "nats");
  }
  return metrics;
}

void WriteSteps(const std::filesystem::path& directory, const StepLog& log,
                const StepLogContext& context) {
  using Type = Columns::Type;
  Columns columns("every step of every rank");
  const auto step = columns.AddColumn("step", Type::kI64, "");
  const auto rank_column = columns.AddColumn("rank", Type::kI64, "");
  const auto measured = columns.AddColumn("measured", Type::kI64, "");
  const auto loss = columns.AddColumn("loss", Type::kF64, "nats");
  std::vector<std::size_t> durations;
  for (const Duration& duration : kDurations)
    durations.push_back(columns.AddColumn(duration.name, Type::kF64, "seconds"));
  std::vector<std::size_t> counters;
  for (const Counter& counter : kCounters)
    counters.push_back(columns.AddColumn(counter.name, Type::kI64, counter.unit));
  const auto density = columns.AddColumn("achieved_density", Type::kF64, "");
  const auto residual = columns.AddColumn("residual_norm", Type::kF64, "");
  for (std::size_t r = 0; r < log.size(); ++r) {
    for (const LoggedStep& logged : log[r]) {
      columns.Append(step, logged.step);
      columns.Append(rank_column, static_cast<std::int64_t>(r));
      columns.Append(measured, static_cast<std::int64_t>(logged.measured));
      columns.Append(loss, logged.loss);
      for (std::size_t d = 0; d < kDurations.size(); ++d)
        columns.Append(durations[d], logged.record.*kDurations[d].member);
      for (std::size_t c = 0; c < kCounters.size(); ++c) {
        columns.Append(counters[c], static_cast<std::int64_t>(logged.record.*kCounters[c].member));
      }
      columns.Append(density, static_cast<double>(logged.record.selected) / context.dense_elements);
      columns.Append(residual, logged.record.residual_norm);
    }
  }
  columns.Write(directory / "steps.cols");
}

void WriteSpans(const std::filesystem::path& directory, std::span<const TracedStep> steps) {
  using Type = Columns::Type;
  Columns columns("the last " + std::to_string(steps.size()) + " measured steps");
  const auto step = columns.AddColumn("step", Type::kI64, "");
  const auto rank_column = columns.AddColumn("rank", Type::kI64, "");
  const auto kind = columns.AddColumn("kind", Type::kString, "");
  const auto lane = columns.AddColumn("lane", Type::kString, "");
  const auto label = columns.AddColumn("label", Type::kString, "");
  const auto begin = columns.AddColumn("begin_seconds", Type::kF64, "seconds");
  const auto end = columns.AddColumn("end_seconds", Type::kF64, "seconds");
  const auto bytes = columns.AddColumn("bytes", Type::kI64, "bytes");
  for (const TracedStep& traced : steps) {
    for (std::size_t r = 0; r < traced.by_rank.size(); ++r) {
      for (const Span& span : traced.by_rank[r]) {
        columns.Append(step, traced.step);
        columns.Append(rank_column, static_cast<std::int64_t>(r));
        columns.Append(kind, std::string(SpanKindName(span.kind)));
        columns.Append(lane, span.lane);
        columns.Append(label, span.label);
        columns.Append(begin, span.begin_seconds);
        columns.Append(end, span.end_seconds);
        columns.Append(bytes, static_cast<std::int64_t>(span.bytes));
      }
    }
  }
  columns.Write(directory / "spans.cols");
  if (!steps.empty()) WriteFileDurably(directory / "trace.json", ChromeTrace(steps.back().by_rank));
}

}  // namespace sparfuse::harness
