// Tests cells of methods with local steps: whole windows, the evaluated parameters, and their
// launches. Also tests that meaningless pairs are refused with the reason.
#include <gtest/gtest.h>

#include <string>

#include "harness/experiment/experiment.hpp"
#include "harness/run/plan/plan_checks.hpp"
#include "harness/run/plan/shared_launch.hpp"
#include "tests/support/experiment_text.hpp"

namespace sparfuse::harness {
namespace {

Catalog CatalogWithLocalSteps() {
  Catalog catalog = SmallCatalog();
  const auto add = [&](const char* name, const char* strategy, const char* sparsifier,
                       const char* collective) {
    Method made;
    made.name = made.title = name;
    made.revision = 1;
    made.strategy = strategy;
    made.planner = "fragments";
    made.sparsifier = sparsifier;
    made.feedback = made.dense() ? "none" : "residual";
    made.collective = collective;
    catalog.methods.push_back(made);
  };
  add("local", "local-steps", "none", "ring-allreduce");
  add("sparse-local", "sparse-local-steps", "chunked-topk", "sparse-allgather");
  add("delayed", "delayed-units", "none", "ring-allreduce");
  return catalog;
}

std::string Text(const std::string& more, const std::string& method = "local") {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n"
         "method = \"" +
         method + "\"\nworkers = 2\n" + more + "\n";
}

Experiment Read(const std::string& text) {
  return ParseExperiment(TomlFile::Parse(text, "file.toml"), CatalogWithLocalSteps(),
                         "/nonexistent");
}

CellConfig CellOf(const std::string& more, const std::string& method = "local") {
  return Read(Text(more, method)).parts.at(0).cells.at(0).config;
}

std::string WhatIsWrong(const std::string& more, const std::string& method = "local") {
  return ErrorOf(Text(more, method), CatalogWithLocalSteps());
}

TEST(LocalSteps, ThroughputIsOfWholeWindows) {
  const CellConfig usual = CellOf("method_options = { every = 8 }");
  EXPECT_EQ(usual.warmup_steps, 8);  // 5 and 15 for other methods
  EXPECT_EQ(usual.steps, 16);
  const CellConfig given = CellOf("method_options = { every = 4 }\nsteps = 9\nwarmup_steps = 0");
  EXPECT_EQ(given.warmup_steps, 4);
  EXPECT_EQ(given.steps, 12);
  EXPECT_EQ(given.method_options.window_steps(), 4);
  EXPECT_TRUE(CellOf("method_options = { every = 1 }").method_options.has_local_steps());
}

TEST(LocalSteps, ThePlanSaysWhatIsRoundedUp) {
  const std::string text = Text("method_options = { every = 4 }\nsteps = 9\nwarmup_steps = 4");
  EXPECT_EQ(
      LengthsInWindows(Read(text)),
      std::vector<std::string>{"part main: steps of method local is 12: whole windows of 4 steps"});
  EXPECT_TRUE(LengthsInWindows(Read(Text("method_options = { every = 3 }\nsteps = 9"))).empty());
  EXPECT_TRUE(LengthsInWindows(Read(Text("steps = 9", "dense"))).empty());
}

TEST(LocalSteps, ConvergenceEndsAnywhereAndEvaluatesTheAnchorUnlessItIsSaid) {
  const std::string convergence = "kind = \"convergence\"\nsteps = 9\n";
  const CellConfig usual = CellOf(convergence + "method_options = { every = 4 }");
  EXPECT_EQ(usual.steps, 9);
  EXPECT_EQ(usual.evaluate, "anchor");
  EXPECT_EQ(CellOf(convergence + "evaluate = \"own\"").evaluate, "own");
  EXPECT_EQ(CellOf(convergence, "dense").evaluate, "");
  EXPECT_SAYS(WhatIsWrong(convergence + "evaluate = \"anchor\"", "dense"),
              "whose ranks have equal parameters");
  EXPECT_SAYS(WhatIsWrong("evaluate = \"anchor\""), "kind = \"convergence\" only");
  EXPECT_SAYS(WhatIsWrong(convergence + "evaluate = \"all\""),
              "expected one of anchor, average, own");
}

// Other cells have the same hash as before the key existed.
TEST(LocalSteps, WhatIsEvaluatedTellsCellsApart) {
  const std::string convergence = "kind = \"convergence\"\n";
  EXPECT_NE(ConfigHash(CellOf(convergence)),
            ConfigHash(CellOf(convergence + "evaluate = \"average\"")));
  const CellConfig dense = CellOf(convergence, "dense");
  nlohmann::json before = ToJson(dense);
  before.erase("evaluate");
  EXPECT_EQ(ConfigHash(before), ConfigHash(dense));
}

TEST(LocalSteps, WhatGoesOnBesideStepsHasALaunchOfItsOwn) {
  const CellConfig dense = CellOf("", "dense");
  const CellConfig blocking = CellOf("method_options = { every = 4 }");
  const CellConfig beside = CellOf("method_options = { every = 4, delay = 1 }");
  EXPECT_TRUE(MayShareALaunch(dense, blocking));
  EXPECT_FALSE(MayShareALaunch(dense, beside));
  EXPECT_TRUE(MayShareALaunch(beside, beside));
  EXPECT_FALSE(MayShareALaunch(dense, CellOf("", "delayed")));
}

// The backend's own all-reduce is used if ranks wait for it; it may not run beside steps.
TEST(LocalSteps, ExchangesBesideStepsAreOurOwn) {
  EXPECT_EQ(CellOf("").method_options.collective, "native-allreduce");
  EXPECT_EQ(CellOf("method_options = { delay = 1 }").method_options.collective, "ring-allreduce");
  EXPECT_EQ(CellOf("", "delayed").method_options.collective, "ring-allreduce");
  EXPECT_SAYS(WhatIsWrong("method_options = { delay = 1, collective = \"native-allreduce\" }"),
              "need not go on beside training");
}

TEST(LocalSteps, AnIdleTriggerHasALaunchOfItsOwnAndIsToldOf) {
  const std::string idle = "method_options = { delay = 1, trigger = \"idle\" }";
  EXPECT_TRUE(CellOf(idle).method_options.begins_when_idle());
  EXPECT_FALSE(CellOf("").method_options.begins_when_idle());
  EXPECT_FALSE(CellOf("", "dense").method_options.begins_when_idle());
  EXPECT_FALSE(MayShareALaunch(CellOf("", "dense"), CellOf(idle)));
  EXPECT_EQ(ResultsThatDependOnTimes(Read(Text(idle))),
            std::vector<std::string>{
                "part main: method local with trigger = \"idle\": the steps that receive depend on "
                "times, so equal seeds may give other parameters"});
  EXPECT_TRUE(ResultsThatDependOnTimes(Read(Text("method_options = { delay = 1 }"))).empty());
  EXPECT_NE(ConfigHash(CellOf(idle)), ConfigHash(CellOf("method_options = { delay = 1 }")));
  EXPECT_SAYS(WhatIsWrong("method_options = { trigger = \"idle\" }"), "delay = 0 with trigger");
  EXPECT_SAYS(WhatIsWrong("method_options = { trigger = \"now\", delay = 1 }"),
              "known: steps, idle");
}

TEST(LocalSteps, InnerStatesTellCellsApartUnlessTheyAreKept) {
  const CellConfig kept = CellOf("");
  nlohmann::json before = ToJson(kept);
  before["method_options"]["strategy_options"].erase("inner_state");
  EXPECT_EQ(ConfigHash(before), ConfigHash(kept));
  const std::string average = "method_options = { inner_state = \"average\" }\n";
  EXPECT_NE(ConfigHash(CellOf(average)), ConfigHash(kept));
  EXPECT_EQ(CellOf(average + "recipe = { optimizer = \"adam\" }")
                .method_options.strategy_options.at("inner_state"),
            OptionValue(std::string("average")));
  for (const char* recipe : {"recipe = { momentum = 0 }", "recipe = { optimizer = \"sign\" }"}) {
    EXPECT_SAYS(WhatIsWrong(average + recipe),
                "inner_state = average with an optimizer that keeps");
    EXPECT_SAYS(WhatIsWrong("method_options = { inner_state = \"reset\" }\n" + std::string(recipe)),
                "inner_state = reset with an optimizer that keeps nothing");
  }
  EXPECT_SAYS(
      WhatIsWrong("method_options = { inner_state = \"average\", collective = \"int8-blocks\" }"),
      "which rounds sums");
  EXPECT_SAYS(WhatIsWrong("method_options = { inner_state = \"reset\", mix = 1 }"),
              "inner_state = reset with mix = 1");
  EXPECT_SAYS(WhatIsWrong("method_options = { inner_state = \"drop\" }"),
              "known: keep, reset, average");
}

TEST(LocalSteps, PairsWithoutMeaningAreRefused) {
  const auto with = [](const std::string& options, const std::string& method = "local") {
    return WhatIsWrong("method_options = { " + options + " }", method);
  };
  EXPECT_SAYS(with("every = 10, fragments = 4"), "expected a multiple of their number");
  EXPECT_SAYS(with("every = 8, fragments = 4, delay = 2"), "expected 0 to 1");
  EXPECT_SAYS(with("outer = \"elastic\", outer_rate = 0.9"), "at most 1 / workers");
  EXPECT_SAYS(with("outer = \"average\"", "sparse-local"), "selects from differences");
  EXPECT_SAYS(
      WhatIsWrong("method_options = { outer = \"sgd\" }\nfeedback = \"momentum\"", "sparse-local"),
      "whose outer optimizer has a momentum");
  EXPECT_SAYS(WhatIsWrong("method_options = { outer = \"sgd\" }\n"
                          "feedback_options = { warmup_epochs = 2 }",
                          "sparse-local"),
              "windows all have one density");
  EXPECT_SAYS(with("outer = \"sgd\", dense_warmup_steps = 3", "sparse-local"),
              "which send no gradients");
}

}  // namespace
}  // namespace sparfuse::harness
