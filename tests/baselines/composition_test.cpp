// Tests what methods may be composed of: the options of what they send, and their refusals.
#include "baselines/composition.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.hpp"

namespace sparfuse {
namespace {

MethodParts Behind() {
  MethodParts parts;
  parts.strategy = "behind";
  parts.planner = "whole-model";
  parts.collective = "sparse-allgather";
  parts.sparsifier = &FindSparsifier("topk");
  parts.density = 0.01;
  parts.feedback = "residual";
  return parts;
}

void ExpectRefused(const MethodParts& parts, const std::string& text) {
  try {
    Compose(parts);
    ADD_FAILURE() << "composed; expected: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kConfig);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(Compose, TakesDenseStepsWhereUnitsCanBeDense) {
  EXPECT_EQ(Compose(Behind()).dense_warmup_steps, 0u);
  MethodParts parts = Behind();
  parts.sending = {{"dense_warmup_steps", std::int64_t{512}}};
  EXPECT_EQ(Compose(parts).dense_warmup_steps, 512u);

  MethodParts naive = parts;
  naive.strategy = "safusion-naive";
  ExpectRefused(naive, "dense_warmup_steps = 512 with strategy \"safusion-naive\"");
  MethodParts momentum = parts;
  momentum.feedback = "momentum";
  ExpectRefused(momentum, "dense_warmup_steps = 512 with feedback \"momentum\"");
  MethodParts dense = parts;
  dense.strategy = "dense-units";
  dense.collective = "ring-allreduce";
  dense.sparsifier = nullptr;
  dense.density = 1;
  dense.feedback = "none";
  ExpectRefused(dense, "dense_warmup_steps = 512: strategy \"dense-units\" sends dense gradients");
  parts.sending = {{"dense_warmup_steps", std::int64_t{-1}}};
  ExpectRefused(parts, "dense_warmup_steps = -1");
}

TEST(Compose, LetsTopkReuseItsThresholdWhereCountsMayDiffer) {
  EXPECT_EQ(Compose(Behind()).threshold_period, 1);
  MethodParts parts = Behind();
  parts.sending = {{"threshold_period", std::int64_t{0}}};
  EXPECT_EQ(Compose(parts).threshold_period, 1);  // exact unless asked for
  parts.sending = {{"threshold_period", std::int64_t{32}}};
  EXPECT_EQ(Compose(parts).threshold_period, 32);
  parts.collective = "gtopk";
  ExpectRefused(parts, "threshold_period = 32 with the sparsifier \"topk\"");
  parts.sending = {};
  EXPECT_NO_THROW(Compose(parts));
}

}  // namespace
}  // namespace sparfuse
