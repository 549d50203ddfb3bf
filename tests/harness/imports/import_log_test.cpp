// Tests the reader of other programs' training logs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/files/durable_file.hpp"
#include "harness/imports/imports.hpp"
#include "tests/harness/imports/our_catalog.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;
using testing::ExpectIn;

TEST(LinePattern, GroupsHaveNames) {
  const std::vector<std::string> known = {"step", "loss"};
  const LinePattern pattern({R"((a|b)+ step=(?<step>\d+)(?:,)? [(] \((?P<loss>[-\d.]+)\))", "m:1"},
                            known);
  const auto found = pattern.Match("ab step=12, ( (-0.5)");
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"step", "12"}, {"loss", "-0.5"}}));
  EXPECT_TRUE(pattern.Match("nothing").empty());
  EXPECT_EQ(pattern.Match(std::string(100'000, 'a') + " step=1 ( (2)").at("step"), "1");
  // The same name in two alternatives.
  EXPECT_EQ(LinePattern({"a(?<step>.)|b(?P<step>.)", "m:1"}, known).Match("b7").at("step"), "7");
  const auto error = [&](const char* text) {
    return ErrorOf([&] { LinePattern({text, "m.toml:3: patterns[0]"}, known); });
  };
  ExpectIn("m.toml:3: patterns[0] = (: expected a regular expression as RE2 reads it: missing )",
           error("("));
  ExpectIn("back references are not supported", error(R"((?<step>a)\1)"));
  ExpectIn("expected a named group", error("(a)"));
  ExpectIn("unknown group \"steps\"; did you mean \"step\"?", error("(?<steps>a)"));
}

constexpr const char* kSetting = R"(source = "our run"
system = "lab"
workload = "resnet50-imagenet"
method = "horovod-fusion"
)";

std::vector<ImportedResult> Log(const std::string& text, const std::string& map,
                                const std::string& name = "train.log",
                                std::vector<std::string>* notes = nullptr) {
  return ReadTrainingLog(text, name, ParseImportMap(kSetting + map, "m.toml", ImportForm::kLog),
                         OurCatalog(), notes);
}

TEST(ImportLog, TheMedianOfStepsBehindTheWarmUp) {
  const std::string map = R"(workers = 4
batch_per_worker = 10
warmup = 2
patterns = ['step (?<step>\d+): (?<milliseconds>[\d.]+) ms, loss (?<loss>[\d.]+)']
)";
  std::string text = "a heading\n";
  const double times[] = {5000, 900, 200, 100, 400};
  for (int step = 0; step < 5; ++step)
    text += "step " + std::to_string(step) + ": " + std::to_string(times[step]) + " ms, loss 1.5\n";
  const auto results = Log(text, map);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].metric, "throughput");
  EXPECT_DOUBLE_EQ(results[0].value, 4 * 10 / 0.2);
  EXPECT_EQ(results[0].steps, 3u);
  EXPECT_GT(results[0].standard_error, 0);
  ASSERT_EQ(results[0].log.size(), 5u);
  EXPECT_FALSE(results[0].log[1].measured);
  EXPECT_TRUE(results[0].log[2].measured);
  EXPECT_EQ(results[0].log[2].loss, 1.5);
}

TEST(ImportLog, WhatItSaysItselfIsTakenAndHeldToWhatTheUserSays) {
  const std::string map = R"(per = "worker"
unit = "img/s"
warmup = 0
patterns = ['GPUs: (?<workers>\d+)', 'rate (?<rate>[\d.]+)', 'sum (?<system_rate>[\d.]+)']
)";
  const std::string text = "GPUs: 4\nrate 10\nrate 12\nrate 11\nsum 44\n";
  const auto results = Log(text, map);
  EXPECT_DOUBLE_EQ(results.at(0).value, 44);
  EXPECT_TRUE(results[0].doubts.empty());
  ExpectIn("m.toml:5: workers = \"8\", and train.log:1: workers = \"4\": expected one of the two",
           ErrorOf([&] { Log(text, "workers = 8\n" + map); }));
  std::string wrong = map;
  wrong.replace(wrong.find("worker"), 6, "system");
  const auto doubted = Log(text, wrong);
  ASSERT_EQ(doubted.at(0).doubts.size(), 1u);
  ExpectIn("by a factor of 4: is per = \"system\" right?", doubted[0].doubts[0]);
}

TEST(ImportLog, EvaluationsMakeACurve) {
  const std::string map = R"(workers = 4
metric_unit = "%"
steps_per_epoch = 100
target = 0.5
patterns = ['epoch (?<epoch>\d+) at (?<clock_ms>\d+)(?: acc (?<metric>[\d.]+))?']
)";
  const auto results =
      Log("epoch 0 at 1000\nepoch 1 at 61000 acc 40\nepoch 2 at 121000 acc 60\n"
          "epoch 3 at 181000 acc 55\n",
          map);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].metric, "final_metric");
  EXPECT_DOUBLE_EQ(results[0].value, 0.55);
  ASSERT_EQ(results[0].curve.size(), 3u);
  EXPECT_EQ(results[0].curve[1].step, 200);
  EXPECT_EQ(results[0].curve[1].seconds, 120);
  const json metrics = ToJson(TrialOf(results[0]).metrics);
  EXPECT_EQ(metrics["steps_to_target"]["value"], 200);
  EXPECT_EQ(metrics["seconds_to_target"]["value"], 120);
}

TEST(ImportLog, CommaSeparatedStepsHaveColumns) {
  const auto results = Log("iter,t,l\n0,9,3\n1,0.5,2\n2,0.5,1\n",
                           "workers = 2\nbatch_per_worker = 8\nwarmup = 1\n[columns]\n"
                           "step = \"iter\"\nseconds = \"t\"\nloss = \"l\"\n",
                           "steps.csv");
  EXPECT_DOUBLE_EQ(results.at(0).value, 2 * 8 / 0.5);
}

TEST(ImportLog, MistakesAreNamed) {
  const std::string lines = R"(patterns = ['t (?<seconds>\S+)']
)";
  const auto error = [&](const std::string& text, const std::string& map) {
    return ErrorOf([&] { Log(text, map); });
  };
  ExpectIn("no workers", error("t 1\n", "warmup = 0\n" + lines));
  ExpectIn("no warmup: expected the number of first steps",
           error("t 1\n", "workers = 1\n" + lines));
  ExpectIn("train.log:2: seconds = \"x\": expected a number",
           error("t 1\nt x\n", "workers = 1\nwarmup = 0\n" + lines));
  ExpectIn("m.toml:7: patterns[0]: it matches no line of train.log",
           error("nothing\n", "workers = 1\nwarmup = 0\n" + lines));
  ExpectIn("all its times belong to the warm-up",
           error("t 1\n", "workers = 1\nwarmup = 1\n" + lines));
  ExpectIn("expected `patterns` in the map", error("t 1\n", "workers = 1\n"));
  ExpectIn("no per: expected worker or system", error("r 5\n",
                                                      "workers = 1\nwarmup = 0\nunit = \"img/s\"\n"
                                                      "patterns = ['r (?<rate>\\d+)']\n"));
  ExpectIn("expected images/s or samples/s",
           error("r 5\n",
                 "workers = 1\nwarmup = 0\nunit = \"tokens/s\"\nper = \"worker\"\n"
                 "patterns = ['r (?<rate>\\d+)']\n"));
  ExpectIn("seconds of a clock are clock_s",
           error("t 1619761818.9 s 0.1\n",
                 "workers = 1\nwarmup = 0\n"
                 "patterns = ['t (?<elapsed>\\S+) s (?<seconds>\\S+)']\n"));
  ExpectIn("steps_per_epoch", error("e 1 m 0.5\n",
                                    "workers = 1\nmetric_unit = \"1\"\n"
                                    "patterns = ['e (?<epoch>\\d+) m "
                                    "(?<metric>\\S+)']\n"));
}

// Logs that users have, each with its expected result.
std::string CaseText(const std::string& name) {
  return ReadFile(testing::SourceDirectory() / "tests/harness/imports/cases" / name);
}

struct LogCase {
  const char* log;
  const char* map;   // in scripts/imports, or beside the log
  const char* more;  // additional keys
  double value;
  std::size_t steps;
  const char* note;  // "": none
};

std::vector<ImportedResult> Read(const LogCase& of, std::vector<std::string>* notes = nullptr) {
  const bool ours = std::string_view(of.map).find(".map.") == std::string_view::npos;
  const std::string map =
      ours ? ReadFile(testing::SourceDirectory() / "scripts/imports" / of.map) : CaseText(of.map);
  return Log(CaseText(of.log), of.more + map, of.log, notes);
}

TEST(ImportLogCases, AreRead) {
  constexpr const char* kEight = "workers = 8\nbatch_per_worker = 32\n";
  constexpr const char* kFour = "workers = 4\nbatch_per_worker = 32\n";
  for (const LogCase& each :
       {LogCase{"log-02-horovod-tagged.log", "horovod-synthetic.toml", "", 1196.4, 10,
                "(\"[1,0]<stdout>:\") taken off before 17 lines"},
        {"log-05-imagenet-prec.log", "pytorch-imagenet.toml", kEight, 8 * 32 / 0.151, 57, ""},
        {"log-08-imagenet-time-only.log", "pytorch-imagenet.toml", kEight, 8 * 32 / 0.151, 57,
         "patterns[1]: it matches no line"},
        {"log-09-imagenet-resumed.log", "pytorch-imagenet.toml",
         "workers = 8\nbatch_per_worker = 32\nsteps_again = \"last\"\n", 0, 0,
         "20 lines left out, since their steps come again"},
        {"log-10-tf-estimator.log", "log-10.map.toml", kEight, 1327, 12,
         "levels and loggers (\"INFO:tensorflow:\") taken off"},
        {"log-11-tf-cnn-four-processes.log", "log-11.map.toml", kFour, 188, 5,
         "each step comes 4 times, as of 4 ranks"},
        {"log-11-tf-cnn-four-processes.log", "tf-cnn-benchmarks.toml",
         "workers = 4\nbatch_per_worker = 32\nper = \"worker\"\n", 188, 6,
         "each step comes 4 times, as of 4 ranks"},
        {"tqdm/log-13-tqdm.log", "tqdm/log-13b.map.toml", kFour, 9.42, 41, ""},
        {"tqdm/log-13-tqdm.log", "tqdm/log-13.map.toml", kFour, 4 * 32 * 9.42, 39, ""},
        {"forms/logging-colours.log", "pytorch-imagenet.toml", kEight, 8 * 32 / 0.252, 25,
         "time stamps (\"2026-05-07 10:39:00,123 - train - INFO - \") taken off"},
        {"log-14-megatron-nan-first.log", "log-14.map.toml", kEight, 0, 36,
         "1 losses are NaN or infinite"}}) {
    std::vector<std::string> notes;
    const auto results = Read(each, &notes);
    ASSERT_FALSE(results.empty()) << each.log;
    if (each.value > 0) {
      EXPECT_NEAR(results[0].value, each.value, 0.003 * each.value) << each.log;
    }
    if (each.steps > 0) {
      EXPECT_EQ(results[0].steps, each.steps) << each.log;
    }
    std::string all;
    for (const std::string& note : notes) all += note + "\n";
    EXPECT_EQ(all.empty(), *each.note == '\0') << all;
    ExpectIn(each.note, all);
  }
}

// DeepSpeed prints an infinite rate after a skipped step. The rate is that of the median time.
TEST(ImportLogCases, InfiniteRatesAreLeftOutAndCounted) {
  for (const auto& [log, steps, tokens, note] :
       {std::tuple("deepspeed/log-15-deepspeed.log", 19u, 32044.285, ""),
        {"deepspeed/log-15b-deepspeed-inf.log", 18u, 32015.984,
         "1 times or rates are NaN or infinite: left out"}}) {
    std::vector<std::string> notes;
    const auto results = ReadTrainingLog(
        CaseText(log), log,
        ParseImportMap("source = \"our run\"\nsystem = \"lab\"\nmethod = \"dense\"\n"
                       "workload = \"bert-large-squad\"\nworkers = 8\nbatch_per_worker = 4\n"
                       "warmup = 0\nunit = \"samples/s\"\nper = \"system\"\n"
                       "units_per_sample = 384\n"
                       "patterns = ['/(?<step>\\d+), SamplesPerSec=(?<rate>[-\\w.]+)']\n",
                       "m.toml", ImportForm::kLog),
        OurCatalog(), &notes);
    ASSERT_EQ(results.size(), 1u) << log;
    EXPECT_NEAR(results[0].value, tokens, 0.001) << log;
    EXPECT_EQ(results[0].steps, steps) << log;
    ASSERT_EQ(notes.size(), *note == '\0' ? 1u : 2u);
    ExpectIn("time stamps (\"[2026-03-11 02:06:01,985] [INFO] \") taken off", notes[0]);
    if (*note != '\0') {
      EXPECT_EQ(notes[1], note);
    }
  }
}

TEST(ImportLogCases, StepsThatGoBackAreNamedWithBothLines) {
  const std::string said = ErrorOf([] {
    Read({"log-09-imagenet-resumed.log", "pytorch-imagenet.toml",
          "workers = 8\nbatch_per_worker = 32\n", 0, 0, ""});
  });
  ExpectIn(
      "log-09-imagenet-resumed.log:44: step 400 after step 780 in "
      "log-09-imagenet-resumed.log:41: expected rising steps",
      said);
}

TEST(ImportLogCases, ClocksInSecondsBeginAtTheFirst) {
  const auto results = Log(CaseText("log-18-tensorboard-scalar.csv"),
                           "workers = 1\nmetric_unit = \"%\"\n[columns]\n"
                           "clock_s = \"Wall time\"\nstep = \"Step\"\nmetric = \"Value\"\n",
                           "scalar.csv");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].curve.front().seconds, 0);
  EXPECT_NEAR(results[0].curve[1].seconds.value_or(0), 94.2, 1e-3);
}

TEST(ImportLogCases, ClocksBesideStepsGiveTheirTimes) {
  std::vector<std::string> notes;
  const auto results = Log(CaseText("log-18-tensorboard-scalar.csv"),
                           "workers = 1\nwarmup = 0\n[columns]\n"
                           "clock_s = \"Wall time\"\nstep = \"Step\"\nloss = \"Value\"\n",
                           "scalar.csv", &notes);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].steps, 11u);
  ExpectIn("18.84 s a step", results[0].stated);
  EXPECT_EQ(notes, std::vector<std::string>{"times of steps are those between lines"});
}

TEST(ImportLog, StepsMayStandAloneBehindTheirValues) {
  const std::string map =
      "workers = 1\nwarmup = 3\n"
      "patterns = ['^took (?<seconds>\\S+)', '^loss (?<loss>\\S+)', '^step (?<step>\\d+)']\n";
  std::string text;
  for (int step = 1; step <= 5; ++step)
    text += fmt::format("took {}\nloss 2.5\nstep {}\n", step, step);
  std::vector<std::string> notes;
  const auto read = [&](const std::string& log) {
    notes.clear();
    return Log(log, map, "train.log", &notes);
  };
  EXPECT_EQ(read(text).at(0).value, 4);  // the median of steps 3 to 5
  EXPECT_EQ(notes,
            std::vector<std::string>{"the line of each step comes after the line of its time"});
  // It may begin after step 0, or at it: nothing in the log tells.
  EXPECT_EQ(read("step 0\n" + text).at(0).value, 4.5);
  ASSERT_EQ(notes.size(), 1u);
  ExpectIn("each time counts for the step before it", notes[0]);
}

// Each state of the bar counts, though backspaces go over it.
TEST(ImportLogCases, BarsMayGoBackByBackspaces) {
  const auto results = Log(CaseText("forms/keras-backspaces.log"),
                           "workers = 1\nwarmup = 0\n"
                           "patterns = ['^(?<step>\\d+)/469 .* (?<milliseconds>\\d+)ms/step']\n",
                           "keras.log");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].steps, 30u);
  EXPECT_DOUBLE_EQ(results[0].value, 0.172);
}

}  // namespace
}  // namespace sparfuse::harness
