// Tests how a trial's metrics follow from its steps, with steps written by hand.
#include "harness/store/step_log.hpp"

#include <gtest/gtest.h>

#include "harness/files/durable_file.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

LoggedStep Served(std::uint64_t elements) {
  LoggedStep step;
  step.measured = true;
  step.record.step_seconds = 1;
  step.record.payload_bytes = 80;
  step.record.sent_bytes = 3 * elements;
  step.record.served = elements;
  return step;
}

// [rank][step]
MetricValues MetricsOfLog(const StepLog& log) {
  StepLogContext context;
  context.unit = "images";
  context.units_per_step = 1;
  context.dense_elements = 1;
  return MetricsOf(log, context);
}

TEST(MetricsOf, ImbalanceIsTheBusiestServerOverTheAverageOne) {
  const MetricValues metrics =
      MetricsOfLog({{Served(30), Served(10)}, {Served(10), Served(10)}, {Served(20), Served(10)}});
  EXPECT_DOUBLE_EQ(*metrics.at("imbalance").value, (1.5 + 1.0) / 2);
}

TEST(MetricsOf, ImbalanceIsOfExchangesWithServersAlone) {
  EXPECT_FALSE(MetricsOfLog({{Served(0)}, {Served(0)}}).contains("imbalance"));
}

TEST(MetricsOf, SentOverPayloadIsOfAllRanks) {
  EXPECT_DOUBLE_EQ(*MetricsOfLog({{Served(40)}, {Served(80)}}).at("sent_over_payload").value,
                   3.0 * (40 + 80) / (80 + 80));
}

// Steps of one rank from `first` on, with these seconds, half of them forward.
std::vector<LoggedStep> Lasting(std::int64_t first, std::vector<double> seconds) {
  std::vector<LoggedStep> steps;
  for (const double each : seconds) {
    LoggedStep step;
    step.step = first++;
    step.measured = true;
    step.record.step_seconds = each;
    step.record.forward_seconds = each / 2;
    step.record.sent_bytes = static_cast<std::uint64_t>(10 * each);
    steps.push_back(step);
  }
  return steps;
}

// Windows of three steps: [3, 6) and [6, 9), with incomplete windows before and behind them. Rank 1
// is the slower one in the second window. A median over steps would be 1.
TEST(MetricsOf, WindowsCountAsAWhole) {
  const StepLog log = {Lasting(2, {90, 1, 1, 10, 1, 1, 4, 50}),
                       Lasting(2, {90, 1, 1, 10, 1, 1, 7, 50})};
  StepLogContext context;
  context.units_per_step = 1;
  context.dense_elements = 1;
  context.every = 3;
  const MetricValues metrics = MetricsOf(log, context);
  EXPECT_DOUBLE_EQ(*metrics.at("step_seconds").value, (12.0 / 3 + 9.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(*metrics.at("window_seconds").value, 3 * *metrics.at("step_seconds").value);
  EXPECT_DOUBLE_EQ(*metrics.at("forward_seconds").value, *metrics.at("step_seconds").value / 2);
  EXPECT_DOUBLE_EQ(*metrics.at("compute_utilisation").value, 0.5);
  EXPECT_DOUBLE_EQ(*metrics.at("window_bytes").value, 10 * (12 + 12 + 6 + 9) / 4.0);
  EXPECT_FALSE(metrics.contains("outer_seconds"));
}

TEST(MetricsOf, StepsAreAllThereIsWhereNoWindowIsWhole) {
  StepLogContext context;
  context.units_per_step = 1;
  context.dense_elements = 1;
  context.every = 8;
  EXPECT_DOUBLE_EQ(*MetricsOf({Lasting(0, {1, 2, 6})}, context).at("step_seconds").value, 3);
}

TEST(MetricsOf, OuterStepsAreAPartOfTheirOwn) {
  std::vector<LoggedStep> steps = Lasting(0, {2, 4});
  steps[1].record.outer_seconds = 1;
  StepLogContext context;
  context.units_per_step = 1;
  context.dense_elements = 1;
  context.every = 2;
  const MetricValues metrics = MetricsOf({steps}, context);
  EXPECT_DOUBLE_EQ(*metrics.at("outer_seconds").value, 0.5);
  EXPECT_DOUBLE_EQ(*metrics.at("other_seconds").value, 3 - 1.5 - 0.5);
}

TEST(SentBytesBefore, AreTheMeanOverRanksOfAllStepsBefore) {
  const StepLog log = {Lasting(0, {1, 2, 3}), Lasting(0, {3, 4, 5})};
  EXPECT_EQ(SentBytesBefore(log, 0), 0);
  EXPECT_EQ(SentBytesBefore(log, 2), (10 + 20 + 30 + 40) / 2);
  EXPECT_EQ(SentBytesBefore(log, 3), (60 + 120) / 2);
  EXPECT_EQ(SentBytesBefore({}, 3), 0);
}

TEST(RoundSeconds, AreOfWholeWindows) {
  std::vector<LoggedStep> steps = Lasting(0, {1, 5, 2, 8, 3, 9});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].round = i < 2 ? 1 : 2;
    steps[i].measured = i < 2 || i > 3;  // the first window of a turn is discarded
  }
  EXPECT_EQ(RoundSeconds({steps}, 2), (std::vector<double>{3, 6}));
}

// Two ranks whose exchanges take 4 and 2 ms; rank 1's step begins 10 ms after rank 0's.
TracedStep Traced(double uncertainty) {
  const Span exchange{SpanKind::kExchange, "data", "", 0.001, 0.005, 8};
  const Span shorter{SpanKind::kExchange, "data", "", 0.001, 0.003, 8};
  const Span pack{SpanKind::kPack, "compute", "", 0, 1e-6, 0};  // of no matter to other ranks
  return {7, {{pack, exchange}, {shorter}}, {100.0, 100.01}, uncertainty};
}

// The begin of the last event in microseconds.
double LastBegin(const std::filesystem::path& trace) {
  return nlohmann::json::parse(ReadFile(trace))["traceEvents"].back()["ts"];
}

TEST(Traces, RanksStandBesideOneAnotherWhereTheirClocksAllowIt) {
  SeriesByFile series;
  for (const double uncertainty : {0.0, 0.00099}) {
    const TemporaryFolder folder;
    WriteSpans(folder.path(), std::vector{Traced(uncertainty)}, series);
    EXPECT_NEAR(LastBegin(folder.path() / "trace.json"), 11'000, 1e-3);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "trace-rank0.json"));
    const auto trace = nlohmann::json::parse(ReadFile(folder.path() / "trace.json"));
    EXPECT_EQ(trace.contains("otherData"), uncertainty > 0);
  }
  const TemporaryFolder folder;
  WriteSpans(folder.path(), std::vector{Traced(0.001)}, series);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "trace.json"));
  EXPECT_NEAR(LastBegin(folder.path() / "trace-rank1.json"), 1'000, 1e-3);
  EXPECT_EQ(nlohmann::json::parse(ReadFile(folder.path() / "trace-rank1.json"))["traceEvents"]
                .back()["pid"],
            1);
}

}  // namespace
}  // namespace sparfuse::harness
