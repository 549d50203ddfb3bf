// Tests the configuration of a cell: its stored form, its round trip, and its identity.
#include "harness/records/cell_config.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

MethodChoice With(const std::string& strategy, const Options& options) {
  MethodChoice choice;
  choice.strategy = strategy;
  choice.strategy_options = options;
  return choice;
}

// Options "every" and "delay" have another meaning in a strategy without local steps, and in one of
// a plug-in that is not loaded.
TEST(MethodChoice, WindowsAreOfStrategiesWithLocalSteps) {
  const Options steps = {{"every", std::int64_t{4}}, {"delay", std::int64_t{1}}};
  const MethodChoice local = With("local-steps", steps);
  EXPECT_TRUE(local.has_local_steps() && local.exchanges_beside_steps());
  EXPECT_EQ(local.window_steps(), 4);
  EXPECT_EQ(WindowSteps({{"method_options", ToJson(local)}}), 4);
  for (const char* name : {"ahead", "a-plug-in's"}) {
    for (const Options& options : {steps, Options{{"delay", 0.5}, {"every", std::string("day")}}}) {
      const MethodChoice other = With(name, options);
      EXPECT_FALSE(other.has_local_steps() || other.exchanges_beside_steps()) << name;
      EXPECT_EQ(other.window_steps(), 1) << name;
      EXPECT_EQ(WindowSteps({{"method_options", ToJson(other)}}), 1) << name;
    }
  }
}

TEST(MethodChoice, DelayedUpdatesExchangeBesideSteps) {
  EXPECT_TRUE(With("delayed-units", {}).exchanges_beside_steps());
  EXPECT_FALSE(With("delayed-units", {}).has_local_steps());
  EXPECT_FALSE(With("dense-units", {}).exchanges_beside_steps());
}

// A cell in which every value with a default differs from it.
CellConfig Cell() {
  CellConfig config;
  config.kind = TrialKind::kConvergence;
  config.mode = Mode::kEmulated;
  config.workload = "digits-resnet";
  config.workload_options = {{"nan_step", std::int64_t{-1}}};
  config.recipe = {{"learning_rate", 0.1}};
  config.workers = 4;
  config.ranks_per_node = 2;
  config.threads_per_worker = 3;
  config.batch_per_worker = 32;
  config.accumulation = 5;
  config.transport = Transport::kThreads;
  config.device = Place::kCuda;
  config.precision = Precision::kBf16;
  config.link = LinkShape{1, 100};
  config.warmup_steps = 6;
  config.steps = 7;
  config.deadline_seconds = 8;
  config.method = "wfbp";
  config.method_content = "0123456789ab";
  config.method_options = {.strategy = "ahead",
                           .planner = "by-bytes",
                           .collective = "sparse-allgather",
                           .strategy_options = {},
                           .planner_options = {{"threshold_bytes", 5.5}},
                           .collective_options = {},
                           .sending = {{"payload_values", std::string("f16")}}};
  config.sparsifier = "dgc";
  config.sparsifier_options = {{"resample", true}};
  config.density = 0.001;
  config.feedback = "residual";
  config.feedback_options = {{"warmup_epochs", std::int64_t{4}}};
  config.dense_tensors = {1, {"bias"}};
  config.no_feedback_tensors = {"norm"};
  config.evaluate_every = 9;
  config.target = 0.9;
  config.evaluate = "own";
  config.cluster = "somewhere";
  config.data = "pictures";
  config.data_id = "0123456789abcdef";
  config.weights = "pretrained";
  config.weights_id = "fedcba9876543210";
  config.inputs = {{"bandwidth", 2}};
  config.broadcast_bytes = 516;
  return config;
}

CellConfig Profile() {
  CellConfig config;
  config.kind = TrialKind::kProfile;
  config.workload = "text-gpt";
  config.sparsifiers = {"topk", "dgc"};
  config.quantizers = {"sign"};
  return config;
}

TEST(CellConfig, ComesBackFromWhatIsStored) {
  EXPECT_EQ(CellConfigOf(ToJson(Cell())), Cell());
  EXPECT_EQ(CellConfigOf(ToJson(CellConfig())), CellConfig());
  EXPECT_EQ(CellConfigOf(ToJson(Profile())), Profile());
  EXPECT_FALSE(ToJson(Profile()).contains("method"));
}

TEST(CellConfig, EveryKeyIsWritten) {
  const json all = ToJson(Cell());
  const json plain = ToJson(CellConfig());
  ASSERT_EQ(plain.size(), all.size());
  for (const auto& [key, value] : all.items()) {
    ASSERT_TRUE(plain.contains(key)) << key;
    EXPECT_NE(value, plain[key]) << key << " is not set by the test";
  }
}

TEST(CellConfig, WhatIsMissingOrOfAnotherTypeIsNamed) {
  const auto error = [](const char* key, const json& value) -> std::string {
    json stored = ToJson(Cell());
    stored[key] = value;
    if (value == "absent") stored.erase(key);
    return testing::ErrorOf([&] { CellConfigOf(stored); }, FailureKind::kData);
  };
  EXPECT_SAYS(error("workers", "absent"), "workers is missing");
  EXPECT_SAYS(error("workers", "two"), "workers = \"two\"");
  EXPECT_SAYS(error("mode", "guessed"), "measured, emulated, modelled");
}

TEST(CellConfig, IntegersDoNotWrap) {
  for (const json& value :
       {json(4294967297), json(-2147483649), json(18446744073709551615u), json(2.5), json(true)}) {
    json stored = ToJson(Cell());
    stored["workers"] = value;
    EXPECT_EQ(testing::ErrorOf([&] { CellConfigOf(stored); }, FailureKind::kData),
              "configuration: workers = " + value.dump() + ": expected an integer from 1 to 65536");
  }
}

TEST(ConfigHash, LeavesOutWhatOnlyNamesATrial) {
  const TrialConfig trial{Cell(), 4, 1, "x"};
  EXPECT_EQ(ConfigHash(ToJson(trial)), ConfigHash(Cell()));
  CellConfig other = Cell();
  other.workers = 3;
  EXPECT_NE(ConfigHash(other), ConfigHash(Cell()));
}

// Frozen: a change here makes every stored trial stale, and needs a new kConfigSchema.
TEST(ConfigHash, IsTheSameWhereConfigurationsSayTheSame) {
  const nlohmann::json cell = ToJson(Cell());
  nlohmann::json trial = cell;
  trial["trial_id"] = "e/p/t";
  trial["seed"] = 7;
  EXPECT_TRUE(SaysTheSame(cell, trial));
  EXPECT_TRUE(SaysTheSame(trial, cell));
  nlohmann::json other = trial;
  other["workers"] = 3;
  EXPECT_FALSE(SaysTheSame(cell, other));
  other = trial;
  other["zzz"] = 0;  // one more key, at the end
  EXPECT_FALSE(SaysTheSame(cell, other));
  EXPECT_FALSE(SaysTheSame(other, cell));
  EXPECT_FALSE(SaysTheSame(cell, nullptr));
}

TEST(ConfigHash, OfTheseConfigurationsIsWhatItWas) {
  CellConfig on_own_data = Cell();  // as before prepared data and weights existed
  on_own_data.data = on_own_data.data_id = on_own_data.weights = on_own_data.weights_id = "";
  on_own_data.evaluate = "";  // also a later key
  on_own_data.broadcast_bytes.reset();
  EXPECT_EQ(ConfigHash(on_own_data),
            "7ccc1cc642c7e34b6a3d3b39b5646ffc8e929ed72b35f89879d4677e513865e9");
  EXPECT_EQ(ConfigHash(CellConfig()),
            "46f8145e0271502a7e3096eb82f9b7219513bfaaac39f1552844132e57bf732b");
  EXPECT_EQ(ConfigHash(Profile()),
            "1ccdf21f2b42a01f2947cc3084f70eec8c32c93492a698ea2dd41e7b875434be");
}

TEST(ConfigHash, AnOptionThatCameLaterCountsOnlyWhereItDoesNotWhatWasDoneBefore) {
  const auto hash = [](std::int64_t dense_warmup_steps) {
    CellConfig cell = Cell();
    cell.method_options.sending["dense_warmup_steps"] = dense_warmup_steps;
    EXPECT_EQ(ConfigHash(cell), ConfigHash(ToJson(cell)));
    return ConfigHash(cell);
  };
  EXPECT_EQ(hash(0), ConfigHash(Cell()));
  EXPECT_NE(hash(1), ConfigHash(Cell()));
}

TEST(CellConfig, ProcessesAreTheSameForCellsThatDifferInMethodAndLength) {
  CellConfig other = Cell();
  other.method = "another";
  other.density = 0.5;
  other.steps += 1;
  other.accumulation += 1;
  EXPECT_TRUE(HaveTheSameProcesses(Cell(), other));
  const auto apart = [](auto change) {
    CellConfig changed = Cell();
    change(changed);
    return !HaveTheSameProcesses(Cell(), changed);
  };
  EXPECT_TRUE(apart([](CellConfig& cell) { cell.workload = "text-gpt"; }));
  EXPECT_TRUE(apart([](CellConfig& cell) { cell.workers = 2; }));
  EXPECT_TRUE(apart([](CellConfig& cell) { cell.threads_per_worker += 1; }));
  EXPECT_TRUE(apart([](CellConfig& cell) { cell.precision = Precision::kFp32; }));
  EXPECT_TRUE(apart([](CellConfig& cell) { cell.link.reset(); }));
  EXPECT_TRUE(apart([](CellConfig& cell) { cell.deadline_seconds += 1; }));
}

// Profiles' hashes count some of the keys that were added later.
TEST(CellConfig, LaterKeysAreErasedUnlessTheySaySomethingOrAreKept) {
  nlohmann::json config = ToJson(CellConfig());
  ASSERT_TRUE(config.contains("broadcast_bytes") && config.contains("data"));
  constexpr std::string_view kKept[] = {"data"};
  EraseLaterKeys(config, kKept);
  EXPECT_FALSE(config.contains("broadcast_bytes"));
  EXPECT_TRUE(config.contains("data"));
  EXPECT_TRUE(config.contains("workers"));
  CellConfig says;
  says.broadcast_bytes = 7;
  config = ToJson(says);
  EraseLaterKeys(config);
  EXPECT_EQ(config["broadcast_bytes"], 7);
  EXPECT_FALSE(config.contains("data"));
}

}  // namespace
}  // namespace sparfuse::harness
