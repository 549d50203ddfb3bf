// Tests the limits of experiment files: errors name both ends of a number's range; counts of cells
// and trials are limited; mistakes are found before any trial.
#include <gtest/gtest.h>

#include <chrono>

#include "harness/experiment/experiment.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/records/cell_keys.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

std::string ErrorOf(const std::string& text) {
  return testing::ErrorOf(
      [&] { ParseExperiment(TomlFile::Parse(text, "file.toml"), SmallCatalog(), "/nonexistent"); });
}

// Line 1: id, 2: [defaults], 3 and 4: mode and workload, 5: method, 6: workers, 7: `line7`.
std::string With(const std::string& line7, const std::string& more = "",
                 const std::string& workers = "2") {
  return "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n"
         "method = \"wfbp\"\nworkers = " +
         workers + "\n" + line7 + "\n" + more;
}

std::string Number(double value) {
  const std::string text = fmt::format("{:.17g}", value);
  return text.find_first_of(".e") == std::string::npos && std::abs(value) >= 1e18 ? text + ".0"
                                                                                  : text;
}

TEST(Limits, EveryNumberOfACellNamesBothEnds) {
  std::size_t seen = 0;
  for (const GivenKey& key : GivenKeysOfCells()) {
    const bool integer = key.type.starts_with("integer, ");
    if (!integer && !key.type.starts_with("number, ")) continue;
    ++seen;
    ASSERT_LT(key.range.least, key.range.most) << key.name;
    EXPECT_SAYS(key.type, Text(key.range)) << key.name;
    const double past = integer ? 1 : key.range.most;
    for (const std::string& value :
         {Number(key.range.least - past), Number(key.range.most + past),
          std::string(integer ? "2147483648" : "1e300"),
          std::string(integer ? "4294967297" : "-1e300"), std::string("-9223372036854775808"),
          std::string("9223372036854775807")}) {
      if (key.range.Has(std::stod(value))) continue;  // 2^31 bytes may be broadcast
      const std::string error = key.name == "workers" ? ErrorOf(With("", "", value))
                                                      : ErrorOf(With(key.name + " = " + value));
      EXPECT_SAYS(error, key.name + " = ");
      EXPECT_SAYS(error, " from " + Text(key.range));
    }
  }
  EXPECT_GE(seen, 10u);
}

TEST(Limits, ALinkThatWouldDelayNothingOrForEverIsRefused) {
  for (const char* link : {"{ gbps = 1, alpha_us = 1e300 }", "{ gbps = 1e-300, alpha_us = 100 }",
                           "{ gbps = 1e300, alpha_us = 100 }", "{ gbps = 1, alpha_us = -1 }"}) {
    const std::string error = ErrorOf(With(std::string("link = ") + link));
    EXPECT_SAYS(error, "file.toml:7: link = ");
    EXPECT_SAYS(error, "gbps from 0.001 to 100000, alpha_us from 0 to 1000000");
  }
}

TEST(Limits, NumbersOfTheWholeFileNameBothEnds) {
  for (const auto& [lines, said] : std::vector<std::pair<std::string, std::string>>{
           {"[repeat]\nblocks = 0", "blocks = 0: expected an integer from 1 to 10000"},
           {"[repeat]\nblocks = 2147483648", "an integer from 1 to 10000"},
           {"[repeat]\nblocks = 4294967297", "an integer from 1 to 10000"},
           {"[repeat]\nseed = 9223372036854775807", "an integer from 0 to 1000000000000000"},
           {"[repeat]\nseed = -1", "an integer from 0 to 1000000000000000"},
           {"[repeat]\ntimeout_seconds = 1e300", "a number from 0.001 to 2592000"},
           {"[repeat]\ntimeout_seconds = 0", "a number from 0.001 to 2592000"}}) {
    EXPECT_SAYS(ErrorOf(With("", lines)), "file.toml:9: ");
    EXPECT_SAYS(ErrorOf(With("", lines)), said);
  }
  EXPECT_SAYS(ErrorOf("minutes = 1e300\n" + With("")), "a number from 0.001 to 1000000");
}

TEST(Limits, AxesStopBeforeTheyMultiplyToTooManyCells) {
  std::string values = "0.001";
  for (int i = 2; i <= 100; ++i) values += fmt::format(", {}", i * 0.001);
  std::string axes;
  for (const char* key : {"density", "deadline_seconds"})
    axes += fmt::format("[[axis]]\n{} = [{}]\n", key, values);
  std::string more = axes;
  for (const char* key : {"steps", "warmup_steps", "accumulation", "batch_per_worker"}) {
    std::string integers = "1";
    for (int i = 2; i <= 100; ++i) integers += fmt::format(", {}", i);
    more += fmt::format("[[axis]]\n{} = [{}]\n", key, integers);
  }
  std::string longest = "[[axis]]\nsteps = [1";
  for (int i = 2; i <= 200'000; ++i) longest += fmt::format(",{}", i);
  for (const std::string& text : {more, longest + "]\n"}) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = ErrorOf(With("", text));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_SAYS(error, "cells: expected at most 10000; drop values");
  }
  EXPECT_SAYS(ErrorOf(With(
                  "", "[[axis]]\nsteps = [" +
                          [] {
                            std::string list = "1";
                            for (int i = 2; i <= 11; ++i) list += fmt::format(", {}", i);
                            return list;
                          }() +
                          "]\n[repeat]\nblocks = 10000\n")),
              "blocks = 10000 with 11 cells: expected at most 100000 trials in a part");
}

TEST(Limits, RanksAndThreadsOfThisMachine) {
  EXPECT_SAYS(ErrorOf(With("", "", "1000000000")),
              "file.toml:6: workers = 1000000000: expected an integer from 1 to 65536");
  EXPECT_SAYS(ErrorOf(With("transport = \"threads\"", "", "1025")),
              "expected at most 1024, or mode = \"modelled\"");
  EXPECT_SAYS(ErrorOf(With("threads_per_worker = 1000000000")), "an integer from 1 to 1024");
  EXPECT_SAYS(ErrorOf(With("threads_per_worker = 1024", "", "8")),
              "8192 threads on this machine: expected at most 4096");
}

TEST(Limits, AStepTakesNoMoreThanTheData) {
  EXPECT_SAYS(
      ErrorOf(With("batch_per_worker = 2001")),
      "file.toml:7: batch_per_worker = 2001: a step takes 4002 samples (workers * "
      "accumulation * batch_per_worker = 2 * 1 * 2001): expected at most 4000, the training "
      "data of digits-resnet");
  EXPECT_EQ(ErrorOf(With("batch_per_worker = 2000")), "no error");
}

TEST(Limits, NamesOfTensorsAreLookedUpAndExpressionsCompiled) {
  for (const char* key :
       {"dense_tensors = { names = [\"{}\"] }", "no_feedback_tensors = [\"{}\"]"}) {
    const auto error = [&](const std::string& name) {
      std::string line = key;
      return ErrorOf(With(line.replace(line.find("{}"), 2, name)));
    };
    EXPECT_SAYS(error("((((("), "file.toml:7: ");
    EXPECT_SAYS(error("((((("), "expected a regular expression as RE2 reads it: missing )");
    EXPECT_SAYS(error("(a)(?=b)"), "looking ahead or behind is not supported");
    EXPECT_SAYS(error("(a*)*b$$"), "is no tensor of workload digits-resnet");
    EXPECT_SAYS(error("no_such_layer"), "is no tensor of workload digits-resnet");
    EXPECT_SAYS(error(std::string(5000, '(')), "5000 characters; expected at most 1000");
    EXPECT_EQ(error("bias$|weight"), "no error");
  }
  EXPECT_SAYS(ErrorOf(With("sparsifier = \"adtopk-interleaved\"\n"
                           "sparsifier_options = { always_all_dimension = \"(\" }")),
              "expected a regular expression");
}

TEST(Limits, IdsAreNamesOfFolders) {
  std::string text = With("");
  text.replace(text.find("\"t\""), 3, "\"" + std::string(101, 'a') + "\"");
  EXPECT_SAYS(ErrorOf(text),
              "file.toml:1: id = \"aaaaaaaaaaaaaaaaaaaa...\" has 101 characters: "
              "expected at most 100");
  EXPECT_SAYS(ErrorOf("id = \"t\"\n[[part]]\nid = \"" + std::string(300, 'b') + "\"\n"),
              "file.toml:3: id = \"bbbbbbbbbbbbbbbbbbbb...\" has 300 characters");
}

TEST(Limits, KeysOfAFigure) {
  const auto figure = [](const std::string& line) {
    return ErrorOf(With("", "[[figure]]\nkind = \"gantt\"\n" + line + "\n"));
  };
  EXPECT_EQ(figure("rank = 1"), "no error");
  EXPECT_SAYS(figure("rank = 4294967296"),
              "file.toml:10: rank = 4294967296: expected an integer "
              "from 0 to 65535");
  EXPECT_SAYS(figure("name = \"" + std::string(101, 'n') + "\""),
              "expected at most 100 characters");
}

TEST(Limits, AClaimComparesTwoCells) {
  const auto claim = [](const std::string& over) {
    return ErrorOf(With("",
                        "[[axis]]\ndensity = [0.1, 0.2]\n[[claim]]\nquote = \"q\"\n"
                        "metric = \"throughput\"\nof = { density = 0.1 }\nover = { density = " +
                            over + " }\nexpect = \"less\"\n"));
  };
  EXPECT_EQ(claim("0.2"), "no error");
  EXPECT_SAYS(claim("0.1"), "is the same cell as `of`: expected another one to compare it with");
}

}  // namespace
}  // namespace sparfuse::harness
