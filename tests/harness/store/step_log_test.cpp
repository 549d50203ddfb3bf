// Tests what a trial's metrics are made of, from steps written by hand.
#include "harness/store/step_log.hpp"

#include <gtest/gtest.h>

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
nlohmann::json Metrics(const StepLog& log) {
  StepLogContext context;
  context.unit = "images";
  context.units_per_step = 1;
  context.dense_elements = 1;
  return MetricsOf(log, context);
}

TEST(MetricsOf, ImbalanceIsTheBusiestServerOverTheAverageOne) {
  const nlohmann::json metrics =
      Metrics({{Served(30), Served(10)}, {Served(10), Served(10)}, {Served(20), Served(10)}});
  EXPECT_DOUBLE_EQ(metrics["imbalance"]["value"], (1.5 + 1.0) / 2);
}

TEST(MetricsOf, ImbalanceIsOfExchangesWithServersAlone) {
  EXPECT_FALSE(Metrics({{Served(0)}, {Served(0)}}).contains("imbalance"));
}

TEST(MetricsOf, SentOverPayloadIsOfAllRanks) {
  EXPECT_DOUBLE_EQ(Metrics({{Served(40)}, {Served(80)}})["sent_over_payload"]["value"],
                   3.0 * (40 + 80) / (80 + 80));
}

}  // namespace
}  // namespace sparfuse::harness
