// Tests which cells `sparfuse explain` compares, its numbers, from steps that the figures' program
// finds, and their wording.
#include "harness/report/explanation.hpp"

#include <gtest/gtest.h>

#include "harness/files/durable_file.hpp"
#include "harness/records/private_facts.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;

StepsByBlock Steps(const std::vector<std::pair<int, double>>& step_of_blocks) {
  StepsByBlock steps;
  for (const auto& [block, step] : step_of_blocks) steps[block].parts["step"] = step;
  return steps;
}

TEST(CompareSteps, PairsTheBlocksOfBoth) {
  const ExplainedSteps steps{Steps({{0, 1}, {1, 3}}), Steps({{0, 2}, {1, 5}, {7, 90}})};
  const ComparedSteps paired = CompareSteps(steps, true);
  EXPECT_TRUE(paired.paired);
  EXPECT_EQ(paired.over_blocks, (std::vector{0, 1}));
  const PartOfStep& step = paired.parts.at("step");
  EXPECT_EQ(step.of, 2.0);
  EXPECT_EQ(step.over, 3.5);
  EXPECT_EQ(step.difference.value, -1.5);
  EXPECT_NEAR(*step.difference.high, -1.5 + 12.7062 * 0.5, 1e-3);  // from -1 and -2
  const ComparedSteps unlike = CompareSteps(steps, false);
  EXPECT_FALSE(unlike.paired);
  EXPECT_EQ(unlike.over_blocks.size(), 3u);
  EXPECT_EQ(unlike.parts.at("step").difference.low, std::nullopt);
}

TEST(ExplainedStepsFile, IsReadWithTheNamesOfWhatIsWrong) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "parts.json";
  json block = {{"parts", {{"step", 0.5}}}, {"quartiles", {0.4, 0.6}}, {"steps", 3}, {"middle", 1},
                {"plan", nullptr},          {"traces", nullptr}};
  const json over = {{"3", block}};
  WriteFileDurably(file, json{{"of", over}, {"over", over}}.dump());
  EXPECT_EQ(ReadExplainedSteps(file).over.at(3).parts.at("step"), 0.5);
  block["steps"] = "x";
  WriteFileDurably(file, json{{"of", {{"3", block}}}, {"over", over}}.dump());
  EXPECT_SAYS(ErrorOf([&] { ReadExplainedSteps(file); }, FailureKind::kData),
              "of of block 3: steps = \"x\"");
}

// Two cells of one block each, with different methods or modes.
class Explained : public ::testing::Test {
 protected:
  Explained() {
    for (Cell* cell : {&of_, &over_}) {
      cell->config.workload = "digits-resnet";
      cell->config.workers = 2;
    }
    of_.config.method = "safusion";
    over_.config.method = "wfbp";
    steps_.of[0] = Block(0.002, "2");
    steps_.over[0] = Block(0.0125, "2");
  }

  static BlockSteps Block(double exposed, const std::string& plan) {
    BlockSteps block{.parts = {{"forward", 0.01},
                               {"backward", 0.021},
                               {"sparsify", 0},
                               {"exposed_communication", exposed},
                               {"decompress", 0},
                               {"update", 0.001},
                               {"other", 0.001},
                               {"step", 0.033 + exposed},
                               {"align_wait", 0},
                               {"remainder", 0}},
                     .quartiles = {0.032 + exposed, 0.034 + exposed},
                     .steps = 3,
                     .middle = 1,
                     .plan = plan};
    block.traces = {.steps = {3},
                    .ranks = {1},
                    .sampling = "the last measured steps",
                    .waits = {{"exchange", "unit 0", exposed, 0, UnitTensors{{"a", "b"}, 7}}},
                    .beside_backward = {.exchanges = 0.005}};
    return block;
  }

  Explanation Found() {
    for (Cell* cell : {&of_, &over_}) cell->json = ToJson(cell->config);
    CellResult* const both[] = {&results_.cells[0], &results_.cells[1]};
    const Cell* const cells[] = {&of_, &over_};
    const StepsByBlock* const steps[] = {&steps_.of, &steps_.over};
    part_.id = "p";
    for (int i = 0; i < 2; ++i) {
      both[i]->cell = cells[i];
      row_.metrics = {{"step_seconds", 0.03}, {"exchanges", 43}, {"sent_bytes", 1000}};
      for (const auto& [block, unused] : *steps[i]) both[i]->trials[block] = &row_;
    }
    const std::vector<PartResult> results = {results_};
    return Explain("quick", results, {&results[0].cells[0], &results[0].cells[1]}, steps_);
  }

  Cell of_, over_;
  ExplainedSteps steps_;
  TrialRow row_;
  Part part_;
  PartResult results_{.part = &part_,
                      .cells = std::vector<CellResult>(2),
                      .settings = {},
                      .hardware = {},
                      .imported = {}};
};

TEST_F(Explained, PartsAddUpAndSidesSayWhatTheyAre) {
  const Explanation found = Found();
  EXPECT_TRUE(found.paired);
  double sum = 0;
  for (const PartOfStep& part : found.parts) sum += part.difference.value;
  EXPECT_NEAR(sum, found.step.difference.value, 1e-15);
  EXPECT_EQ(found.of.name, "safusion");
  EXPECT_EQ(found.of.part, "p");
  EXPECT_EQ(found.differ_in, std::vector<std::string>{"method"});
  EXPECT_TRUE(found.unlike_in.empty());
  EXPECT_EQ(found.over.facts.at("exchanges"), 43);
  EXPECT_EQ(found.over.facts.at("payload_bytes"), std::nullopt);
  EXPECT_EQ(found.over.traces.exposed_seconds, 0.0125);
  const json written = ToJson(found);
  EXPECT_EQ(written["over"]["traces"]["waits"][0]["tensors"],
            (json{{"names", {"a", "b"}}, {"elements", 7}}));
  EXPECT_EQ(written["preliminary_below"], kPreliminaryBelowBlocks);
  EXPECT_EQ(written["conclusion"], ConclusionOf(found));
}

TEST_F(Explained, TracesAreMeansOverTheBlocksThatHaveThem) {
  steps_.of[1] = Block(0.004, "3");
  steps_.of[1].traces->waits.push_back({"before", "unit 1", 0.008, 0.002, {}});
  steps_.of[2] = steps_.over[1] = steps_.over[2] = Block(0.02, "2");
  steps_.of[2].traces.reset();
  const TracedMeans traces = Found().of.traces;
  EXPECT_EQ(traces.blocks, 2u);
  EXPECT_EQ(traces.plans, 2u);
  ASSERT_EQ(traces.waits.size(), 2u);
  EXPECT_EQ(traces.waits[0].what, "before");  // 4 ms against 3 ms
  EXPECT_DOUBLE_EQ(traces.waits[0].seconds, 0.004);
  EXPECT_DOUBLE_EQ(traces.waits[1].seconds, 0.003);
  EXPECT_DOUBLE_EQ(traces.until_last_rank_seconds, 0.001);
}

TEST_F(Explained, TheTextConcludesAndHasTheNumbers) {
  steps_.of[1] = Block(0.003, "2");
  steps_.over[1] = Block(0.0135, "2");
  steps_.over[2] = Block(1, "2");
  Explanation found = Found();
  found.of.hardware = found.over.hardware = "Intel, 2 cores";
  found.of.mode = found.over.mode = "emulated";
  EXPECT_EQ(
      WordsOf(found, {"(of inputs)"}),
      R"(safusion is 29.6 % faster than wfbp: exposed communication -10.5 ms, the step -10.5 ms.

| ms a step             | safusion |  wfbp | difference | share | 95 % interval of it |
|-----------------------|---------:|------:|-----------:|------:|--------------------:|
| forward               |    10.00 | 10.00 |      +0.00 |   0 % |   [+0.00, +0.00] ms |
| backward              |    21.00 | 21.00 |      +0.00 |   0 % |   [+0.00, +0.00] ms |
| sparsification        |     0.00 |  0.00 |      +0.00 |   0 % |   [+0.00, +0.00] ms |
| exposed communication |     2.50 | 13.00 |     -10.50 | 100 % | [-10.50, -10.50] ms |
| decompression         |     0.00 |  0.00 |      +0.00 |   0 % |   [+0.00, +0.00] ms |
| update                |     1.00 |  1.00 |      +0.00 |   0 % |   [+0.00, +0.00] ms |
| other                 |     1.00 |  1.00 |      +0.00 |   0 % |   [+0.00, +0.00] ms |
| step (median)         |    35.50 | 46.00 |     -10.50 | 100 % | [-10.50, -10.50] ms |

|                                 | safusion |    wfbp |
|---------------------------------|---------:|--------:|
| exchanges a step                |     43.0 |    43.0 |
| sent                            |  1.00 kB | 1.00 kB |
| exchanges during backward, ms   |     5.00 |    5.00 |
| lower quartile of the steps, ms |    34.50 |   45.00 |
| upper quartile, ms              |    36.50 |   47.00 |

(of inputs)

| safusion | ms a step | until the last rank came | tensors               |
|----------|----------:|-------------------------:|-----------------------|
| unit 0   |     2.500 |                    0.000 | 2: a to b, 7 elements |

(traced: step 3 of n = 2 blocks)

| wfbp   | ms a step | until the last rank came | tensors               |
|--------|----------:|-------------------------:|-----------------------|
| unit 0 |    13.000 |                    0.000 | 2: a to b, 7 elements |

(traced: step 3 of n = 2 blocks)

emulated: real ranks and data over a link slowed down on purpose; Intel, 2 cores
n = 2 blocks; paired; preliminary
blocks of wfbp alone: 2
)");
}

TEST_F(Explained, ADifferenceWithinNoiseIsSaidToBeIt) {
  Explanation found = Found();
  EXPECT_NE(ConclusionOf(found).find(", by one block each"), std::string::npos);
  found.step.difference = {-0.010, -0.03, 0.01, 2};
  EXPECT_EQ(ConclusionOf(found),
            "safusion and wfbp may be equally fast: the interval of the difference, [-30.00, "
            "+10.00] ms, contains 0: exposed communication -10.5 ms, the step -10.0 ms.");
  found.step.difference = {0, 0, 0, 2};
  EXPECT_EQ(ConclusionOf(found), "safusion and wfbp take the same 35.0 ms a step.");
}

TEST_F(Explained, ModesThatDifferAreUnlikeNumbersWithoutAnInterval) {
  over_.config.mode = Mode::kModelled;
  const Explanation found = Found();
  EXPECT_FALSE(found.paired);
  EXPECT_EQ(found.over.name, "wfbp (modelled)");
  EXPECT_EQ(found.unlike_in.at("mode"), (json{"measured", "modelled"}));
  const std::string words = WordsOf(found, {});
  for (const char* said : {"(unlike numbers: measured against modelled)", "n = 1 block; not paired",
                           ", without an interval", "modelled: computed by"})
    EXPECT_NE(words.find(said), std::string::npos) << said;
}

TEST_F(Explained, OneMethodIsNamedByWhatElseDiffers) {
  over_.config.method = "safusion";
  over_.config.workers = 1;
  const Explanation found = Found();
  EXPECT_EQ(found.of.name, "safusion (2 workers)");
  EXPECT_EQ(found.over.name, "safusion (1 worker)");
  EXPECT_NE(WordsOf(found, {}).find("differs: workers (2 against 1)"), std::string::npos);
}

TEST_F(Explained, EveryKindOfWaitHasItsWords) {
  auto& waits = steps_.of[0].traces->waits;
  waits = {{"before", "unit 1", .009, .001, {}},
           {"negotiate", "unit 2", .008, 0, {}},
           {"negotiate", "", .007, 0, {}},
           {"local work", "w", .006, 0, {}},
           {"other ranks", "buffer 0", .005, 0, {}},
           {"after", "", .004, 0, {}},
           {"exchange", "unit 0", .003, 0, UnitTensors{{"a", "b"}, 1, 0, 9}},
           {"exchange", "unit 3, dense", .0025, 0, UnitTensors{{"c"}, 12, 3, {}}},
           {"exchange", "unit 4", .001, 0, {}},
           {"exchange", "unit 5", .001, 0, {}}};
  const std::string words = WordsOf(Found(), {});
  for (const char* said :
       {"| nothing under way, before unit 1 ", "| negotiation of unit 2 ", "| negotiation  ",
        "| work of another lane: w ", "| other ranks, before buffer 0 ",
        "| nothing under way, after the last exchange ",
        "| 2: a to b, 1 element, by path 9, whole ",
        "| the dense of 1: c, 12 elements, sparsified in 3 parts ",
        "| 2 others                                   |     2.000 |"})
    EXPECT_NE(words.find(said), std::string::npos) << said << "\n" << words;
  steps_.of[0].traces->waits.clear();
  steps_.over[0].traces.reset();
  const std::string none = WordsOf(Found(), {});
  EXPECT_NE(none.find("safusion: the compute lane never waited"), std::string::npos);
  EXPECT_NE(none.find("wfbp: no spans were kept."), std::string::npos);
  of_.config.mode = over_.config.mode = Mode::kModelled;
  waits = {{"before", "", .001, 0, {}}};
  const std::string computed = WordsOf(Found(), {});
  EXPECT_NE(computed.find("| ranks still to come to the exchange |"), std::string::npos);
  EXPECT_NE(computed.find("computed, so without an interval"), std::string::npos);
}

// Parts "live" (with twins) and "other": two methods, two links each.
class ExplainCommand : public ::testing::Test {
 protected:
  ExplainCommand() {
    const Experiment experiment = ParseExperiment(TomlFile::Parse(R"(
id = "t"
[defaults]
workload = "digits-resnet"
mode = "emulated"
[[part]]
id = "live"
[part.defaults]
workers = 2
[part.repeat]
predict = true
[[part.axis]]
link = [{ gbps = 1, alpha_us = 100 }, { gbps = 10, alpha_us = 100 }]
[[part.axis]]
method = ["dense", "wfbp"]
[[part]]
id = "other"
[part.defaults]
workers = 4
link = { gbps = 1, alpha_us = 100 }
[[part.axis]]
method = ["dense", "wfbp"]
)",
                                                                  "t.toml"),
                                                  SmallCatalog(), "/nonexistent");
    parts_ = PartsWithTwins(experiment);
    for (const Part& part : parts_) {
      PartResult result;
      result.part = &part;
      for (const Cell& cell : part.cells) {
        CellResult entry;
        entry.cell = &cell;
        entry.trials[0] = &row_;
        result.cells.push_back(entry);
      }
      results_.push_back(std::move(result));
    }
  }

  ExplainedCells Choose(const std::string& of, const std::string& over,
                        const std::string& part = "") {
    return ChooseExplained(parts_, results_, rows_, {"t", part, of, over, results_folder_});
  }
  std::string ErrorOf(const std::string& of, const std::string& over,
                      const std::string& part = "") {
    return testing::ErrorOf([&] { Choose(of, over, part); });
  }

  std::filesystem::path results_folder_;
  std::vector<Part> parts_;
  TrialRow row_;
  std::vector<TrialRow> rows_;
  std::vector<PartResult> results_;
};

TEST_F(ExplainCommand, KeysAndPathsIntoTablesLeaveOneCellEach) {
  const auto chosen =
      Choose("method=wfbp,workers=2,link.gbps=10", "method=dense,workers=4,workload=digits-resnet");
  EXPECT_EQ(chosen.of->cell->json["method"], "wfbp");
  EXPECT_EQ(chosen.of->cell->json["link"]["gbps"], 10);
  EXPECT_EQ(chosen.over->cell->json["workers"], 4);
  EXPECT_EQ(chosen.of->cell->json["mode"], "emulated");  // not the modelled twin
}

TEST_F(ExplainCommand, TwinsAreLookedAtWhereTheModeAsksForThem) {
  const auto chosen =
      Choose("method=wfbp,link.gbps=10", "method=wfbp,link.gbps=10,mode=modelled", "live");
  EXPECT_EQ(chosen.over->cell->json["mode"], "modelled");
  EXPECT_EQ(chosen.of->cell->json["mode"], "emulated");
}

TEST_F(ExplainCommand, WhatLeavesSeveralNamesTheKeysAndCompletesTheCommand) {
  const std::string error = ErrorOf("method=wfbp,link.gbps=10", "method=dense,workers=2");
  EXPECT_SAYS(error, "--over leaves 2 cells; keys that tell them apart:\n  link.gbps: 1, 10");
  EXPECT_SAYS(error,
              "for example: sparfuse explain t --of method=wfbp,link.gbps=10 "
              "--over method=dense,workers=2,link.gbps=10");
}

TEST_F(ExplainCommand, TheCommandOfferedTakesCellsThatHaveResults) {
  for (CellResult& cell : results_[0].cells) {
    if (cell.cell->json["link"]["gbps"] == 1) cell.trials.clear();
  }
  EXPECT_SAYS(ErrorOf("method=wfbp", "method=dense", "live"),
              "--of method=wfbp,link.gbps=10 --over method=dense,link.gbps=10 --part live");
}

TEST_F(ExplainCommand, WhatIsMisspeltHasANearestName) {
  EXPECT_SAYS(ErrorOf("methd=wfbp", "method=dense"),
              "--of: unknown key \"methd\"; did you mean \"method\"?");
  EXPECT_SAYS(ErrorOf("link.gps=1", ""), "unknown key \"link.gps\"; did you mean \"link.gbps\"?");
  EXPECT_SAYS(ErrorOf("method=wfbpp", ""),
              "--of method=wfbpp: no cell has it: expected one of dense, wfbp; did you mean "
              "\"wfbp\"?");
  EXPECT_SAYS(ErrorOf("workers=4,link.gbps=10", ""),
              "--of link.gbps=10: no cell with workers=4 has it: expected one of 1");
  EXPECT_SAYS(ErrorOf("", "", "lve"), "unknown part \"lve\" of t; did you mean \"live\"?");
  EXPECT_SAYS(ErrorOf("method", ""), "--of \"method\": expected key=value pairs");
}

TEST_F(ExplainCommand, TheSameCellTwiceIsRefused) {
  EXPECT_SAYS(ErrorOf("method=wfbp,workers=4", "method=wfbp,workers=4"), "are the same cell");
}

TEST_F(ExplainCommand, ACellWithoutResultSaysWhyAndWhatRunsIt) {
  CellResult& cell = results_[2].cells[0];
  ASSERT_EQ(cell.cell->json["workers"], 4);
  cell.trials.clear();
  cell.failure = "not run";
  EXPECT_SAYS(ErrorOf("method=dense,workers=4", "method=wfbp,workers=4"),
              "has not run; `sparfuse run t` runs it");
  cell.failure = "timeout";
  row_.config_hash = cell.cell->config_hash;
  row_.trial_id = "t/other/dense-b0-1";
  const TemporaryFolder results;
  results_folder_ = results.path();
  row_.directory = "trials/t/other/dense-b0-1";
  std::filesystem::create_directories(results.path() / row_.directory);
  PrivateFacts facts;
  facts.failure = "rank 1 does not answer";
  WritePrivateFacts(results.path() / row_.directory, facts);
  rows_ = {row_};
  EXPECT_SAYS(ErrorOf("method=dense,workers=4", "method=wfbp,workers=4"),
              "has no result: timeout: rank 1 does not answer (t/other/dense-b0-1; its log.txt "
              "has the rest); `sparfuse run t` runs it again");
}

}  // namespace
}  // namespace sparfuse::harness
