// Tests what a trial's metrics are made of, from steps written by hand.
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

// Two ranks, whose exchanges take 4 and 2 ms; rank 1's step begins 10 ms after rank 0's.
TracedStep Traced(double uncertainty) {
  const Span exchange{SpanKind::kExchange, "data", "", 0.001, 0.005, 8};
  const Span shorter{SpanKind::kExchange, "data", "", 0.001, 0.003, 8};
  const Span pack{SpanKind::kPack, "compute", "", 0, 1e-6, 0};  // of no matter to other ranks
  return {7, {{pack, exchange}, {shorter}}, {100.0, 100.01}, uncertainty};
}

// Begin in microseconds of the last event.
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
