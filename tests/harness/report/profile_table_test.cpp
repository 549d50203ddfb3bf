// Tests the tables of profile trials.
#include <gtest/gtest.h>

#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

ProfileOutcome Outcome(int batch) {
  CellConfig config;
  config.kind = TrialKind::kProfile;
  config.workload = "text-gpt";
  config.batch_per_worker = batch;
  config.workers = 2;
  json outcome = {{"config", ToJson(config)}};
  const json curve = json::array({{1, 0.0}, {2000000, 2e-3}});
  outcome["profile"] = {
      {"backward",
       {{"steps", 50},
        {"begin_seconds", 0},
        {"tail_seconds", 0},
        {"forward_seconds", 0.04},
        {"unhooked_seconds", 0.08},
        {"hooked_seconds", 0.09},
        {"update_seconds", 0.001},
        {"tensors",
         json::array({{{"name", "a"}, {"shape", {5}}, {"numel", 5}, {"seconds", 0.02}},
                      {{"name", "b"}, {"shape", {7}}, {"numel", 7}, {"seconds", 0.06}}})}}},
      {"pack", curve},
      {"scale", curve},
      {"clear", curve},
      {"seconds_per_entry", 4e-9},
      {"seconds_per_reduced_element", 1e-9},
      {"dispatch_seconds", 1e-6},
      {"exchange_dispatch_seconds", 2e-6},
      {"selection", {{"topk", json::array({{{"density", 0.01}, {"seconds", curve}}})}}},
      {"relative_errors", {{"/backward/forward_seconds", 0.05}}},
      {"link",
       {{"class", "intra_node"},
        {"round_seconds", curve},
        {"seconds_per_extra_message", 0},
        {"cpu_seconds", 0},
        {"round_cpu_seconds", 0},
        {"cpu_fraction", 0},
        {"fit",
         {{"alpha_seconds", 20e-6},
          {"alpha_standard_error", 1e-6},
          {"seconds_per_byte", 1e-9},
          {"seconds_per_byte_standard_error", 0.0},
          {"points", 3},
          {"relative_residuals", json::array()},
          {"rms_relative_residual", 0.1},
          {"worst_relative_residual", -0.15},
          {"r_squared", 0.99}}}}}};
  return ProfileOutcomeOf(outcome, "outcome");
}

// 2 standard errors of 5 % around 40 ms; alpha 20 +- 12.706 * 1 us with one degree of freedom.
TEST(ProfileTables, SayHowWellTheyKnow) {
  ProfileOutcome outcome = Outcome(32);
  const auto tables = ProfileTables({outcome});
  ASSERT_EQ(tables.size(), 4u);
  EXPECT_EQ(tables[0].rows[0][4], "40.0 ± 3.9");
  EXPECT_EQ(tables[0].rows[0].back(), "–");
  outcome.machine["load_before"] = 0.12;
  EXPECT_EQ(ProfileTables({outcome})[0].rows[0].back(), "0.1");
  EXPECT_EQ(tables[1].rows[0][1], "b");
  EXPECT_EQ(tables[1].rows[0][4], "75.0 %");
  EXPECT_EQ(tables[2].rows[0], (std::vector<std::string>{"select topk", "1.000"}));
  EXPECT_EQ(tables[3].rows[0][4], "20 ± 13");
  EXPECT_EQ(tables[3].rows[0][6], "8.00");
  EXPECT_EQ(tables[3].rows[0][8], "-15.0 %");
}

// No table has two outcomes of the same name.
TEST(ProfileTables, TellOutcomesApart) {
  const auto tables = ProfileTables({Outcome(16), Outcome(32)});
  EXPECT_EQ(tables[0].rows[0][0], "text-gpt, batch 16");
  EXPECT_EQ(tables[0].rows[1][0], "text-gpt, batch 32");
  EXPECT_EQ(tables[1].rows.size(), 4u);
  EXPECT_EQ(tables[2].columns[2], "text-gpt, batch 32 x2");
  EXPECT_EQ(tables[3].rows[1][0], "text-gpt, batch 32");
  ProfileOutcome on_card = Outcome(32);
  on_card.config.device = Place::kCuda;
  EXPECT_EQ(ProfileTables({on_card})[0].rows[0][0], "text-gpt, cuda");
}

}  // namespace
}  // namespace sparfuse::harness
