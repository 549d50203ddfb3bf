#include <gtest/gtest.h>

#include "harness/imports/imported_result.hpp"

namespace sparfuse::harness {
namespace {

const workloads::WorkloadDescriptor& Images() {
  return workloads::FindWorkload("resnet50-imagenet");
}
const workloads::WorkloadDescriptor& Tokens() { return workloads::FindWorkload("bert-base-squad"); }

TEST(BaseUnits, RatesAreOfAllWorkers) {
  for (const char* unit : {"images/s", "img/sec", "imgs/s", "Samples/s", "examples / second"}) {
    const auto all = ToBaseUnits(kThroughput, 100, unit, Images(), {8, false, 0});
    EXPECT_EQ(all.expected, "") << unit;
    EXPECT_EQ(all.value, 100) << unit;
    EXPECT_EQ(all.unit, "images/s");
    EXPECT_EQ(ToBaseUnits(kThroughput, 100, unit, Images(), {8, true, 0}).value, 800) << unit;
  }
}

TEST(BaseUnits, SamplesOfTokensNeedTheirLength) {
  EXPECT_NE(ToBaseUnits(kThroughput, 10, "sequences/s", Tokens(), {}).expected, "");
  const auto known = ToBaseUnits(kThroughput, 10, "sequences/s", Tokens(), {4, true, 384});
  EXPECT_EQ(known.expected, "");
  EXPECT_EQ(known.value, 10 * 4 * 384);
  EXPECT_EQ(known.unit, "tokens/s");
  // Tokens are counted already.
  EXPECT_EQ(ToBaseUnits(kThroughput, 10, "tokens/s", Tokens(), {1, false, 384}).value, 10);
}

TEST(BaseUnits, WhatAnotherWorkloadCountsIsRefused) {
  for (const char* unit :
       {"tokens/s", "ms", "steps/s", "images", "images/min", "", "/s", "images/"})
    EXPECT_NE(ToBaseUnits(kThroughput, 1, unit, Images(), {}).expected, "") << unit;
  EXPECT_NE(ToBaseUnits(kThroughput, 1, "images/s", Tokens(), {}).expected, "");
}

TEST(BaseUnits, StepsTakeSeconds) {
  for (const auto& [unit, value] : {std::pair("s", 0.25),
                                    {"ms", 250.0},
                                    {"ms/iteration", 250.0},
                                    {"us/step", 250'000.0},
                                    {"it/s", 4.0},
                                    {"steps/sec", 4.0}}) {
    const auto step = ToBaseUnits(kStepSeconds, value, unit, Images(), {8, true, 0});
    EXPECT_EQ(step.expected, "") << unit;
    EXPECT_DOUBLE_EQ(step.value, 0.25) << unit;
    EXPECT_EQ(step.unit, "s");
  }
  for (const char* unit : {"images/s", "ms/image", "%", "furlongs"})
    EXPECT_NE(ToBaseUnits(kStepSeconds, 1, unit, Images(), {}).expected, "") << unit;
}

TEST(BaseUnits, WhatIsEvaluatedIsAFraction) {
  EXPECT_DOUBLE_EQ(ToBaseUnits(kFinalMetric, 76.1, "%", Images(), {}).value, 0.761);
  EXPECT_EQ(ToBaseUnits(kFinalMetric, 0.761, "1", Images(), {}).unit, "accuracy");
  EXPECT_EQ(ToBaseUnits(kFinalMetric, 0, "%", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kFinalMetric, 76.1, "1", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kFinalMetric, 101, "%", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kFinalMetric, -1, "%", Images(), {}).expected, "");
  const auto& text = workloads::FindWorkload("lstm-wikitext2");
  EXPECT_EQ(ToBaseUnits(kFinalMetric, 109, "perplexity", text, {}).value, 109);
  EXPECT_NE(ToBaseUnits(kFinalMetric, 0.5, "perplexity", text, {}).expected, "");
}

TEST(BaseUnits, TimesToTargetAreSeconds) {
  EXPECT_EQ(ToBaseUnits(kSecondsToTarget, 1.5, "h", Images(), {}).value, 5400);
  EXPECT_EQ(ToBaseUnits(kSecondsToTarget, 2, "minutes", Images(), {}).value, 120);
  EXPECT_NE(ToBaseUnits(kSecondsToTarget, 2, "ms/step", Images(), {}).expected, "");
  EXPECT_NE(ToBaseUnits(kSecondsToTarget, 0, "h", Images(), {}).expected, "");
}

}  // namespace
}  // namespace sparfuse::harness
