// Tests claims of experiment files: the cells of each claim, and the other declarations of a file.
#include <gtest/gtest.h>

#include "harness/experiment/experiment.hpp"
#include "tests/support/experiment_text.hpp"

namespace sparfuse::harness {
namespace {

TEST(Experiment, APrecisionOrDeviceThatIsLeftOutIsStillFoundByItsName) {
  const std::string axis = "[[axis]]\ndevice = [\"cpu\", \"cuda\"]\n";
  const auto claims = Parse(WithLine("", axis + R"(
[[claim]]
quote    = "A card is faster"
metric   = "throughput"
for_each = ["method", "workers"]
of       = { device = "cuda" }
over     = { device = "cpu" }
expect   = "more"
)"))
                          .parts.at(0)
                          .claims;
  ASSERT_EQ(claims.size(), 4u);
  for (const Claim& claim : claims) EXPECT_NE(claim.of_cell, claim.over_cell);
}

TEST(Experiment, SettingsOfClaimsAreInWords) {
  const auto claims = Parse(R"(id = "t"
[defaults]
mode = "emulated"
workload = "digits-resnet"
workers = 2
[[axis]]
link = [{ gbps = 1, alpha_us = 100 }, { gbps = 0.2, alpha_us = 250 }]
[[axis]]
method = ["dense", "wfbp"]
[[claim]]
quote = "faster"
metric = "throughput"
for_each = ["workload", "link"]
of = { method = "wfbp" }
over = { method = "dense" }
expect = "more"
)")
                          .parts.at(0)
                          .claims;
  ASSERT_EQ(claims.size(), 2u);
  EXPECT_EQ(claims[0].setting, "digits-resnet, 1 Gbit/s link, 100 µs per message");
  EXPECT_EQ(claims[1].quote, "faster (digits-resnet, 0.2 Gbit/s link, 250 µs per message)");
}

TEST(Experiment, ClaimsMustMatchOneCellEach) {
  const std::string claim =
      "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nof = { method = \"wfbp\", workers = 4 }\n"
      "over = { method = \"dense\", workers = 4 }\nstated = 1.5\n";
  const auto part = Parse(WithLine("", claim)).parts.at(0);
  ASSERT_EQ(part.claims.size(), 1u);
  EXPECT_EQ(part.cells[part.claims[0].of_cell].config.method, "wfbp");
  EXPECT_EQ(part.claims[0].judged(), 1.5);
  std::string wide = claim;
  wide.replace(wide.find(", workers = 4 }\nover"), 16, " }\n");
  EXPECT_SAYS(ErrorOf(WithLine("", wide)), "matches 2 cells");
  std::string metric = claim;
  metric.replace(metric.find("throughput"), 10, "throughputs");
  EXPECT_SAYS(ErrorOf(WithLine("", metric)), "did you mean \"throughput\"");
  EXPECT_SAYS(ErrorOf(WithLine("", "[figure]\nkind = \"bars\"\n")), "unknown kind of figure");
}

TEST(Experiment, AClaimStandsForEachCombinationOfItsKeys) {
  const auto claims = Parse(WithLine("", R"(
[[claim]]
quote = "faster"
metric = "throughput"
for_each = ["workers"]
of = { method = "wfbp" }
over = { method = "dense" }
expect = "more"
[[claim]]
quote = "everything sends"
metric = "tensors_missing"
for_each = ["method", "workers"]
of = { method = ["wfbp", "dense"], workers = 4 }
equals = 0
[[claim]]
quote = "scales"
metric = "step_seconds"
for_each = ["method", "workers"]
of = { workers = 4 }
over = { workers = 2 }
difference = true
at_most = 0.5
)"))
                          .parts.at(0)
                          .claims;
  ASSERT_EQ(claims.size(), 6u);
  const auto part = Parse(WithLine("")).parts.at(0);
  const auto cell = [&](std::size_t i) { return part.cells.at(i).config; };
  EXPECT_EQ(claims[0].compared, Compared::kRatio);
  EXPECT_EQ(claims[0].bound.comparison, Comparison::kMore);
  EXPECT_EQ(claims[0].bound.value, 1);
  EXPECT_EQ(claims[1].quote, "faster (workers 4)");
  EXPECT_EQ(claims[1].sentence, "faster");
  EXPECT_EQ(claims[1].setting, "workers 4");
  EXPECT_EQ(cell(claims[1].of_cell).method, "wfbp");
  EXPECT_EQ(cell(claims[1].of_cell).workers, 4);
  EXPECT_EQ(cell(claims[1].over_cell).method, "dense");
  EXPECT_EQ(cell(claims[1].over_cell).workers, 4);
  EXPECT_EQ(claims[2].compared, Compared::kValue);
  EXPECT_EQ(claims[3].quote, "everything sends (wfbp, workers 4)");
  EXPECT_EQ(claims[4].compared, Compared::kDifference);
  EXPECT_EQ(cell(claims[5].of_cell).method, cell(claims[5].over_cell).method);
  EXPECT_EQ(cell(claims[5].over_cell).workers, 2);
  EXPECT_EQ(claims[5].bound.value, 0.5);
}

TEST(Experiment, ErrorsOfClaimsSayWhatIsExpected) {
  const auto error = [](const std::string& lines, bool over = true) {
    return ErrorOf(WithLine(
        "",
        "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\n"
        "of = { method = \"wfbp\", workers = 4 }\n" +
            std::string(over ? "over = { method = \"dense\", workers = 4 }\n" : "") + lines));
  };
  EXPECT_EQ(error("expect = \"less\""), "no error");
  EXPECT_SAYS(error(""), "file.toml:10: [[claim]]: nothing is expected: expected exactly one of");
  EXPECT_SAYS(error("stated = 2\nexpect = \"less\""), "stated, expect together");
  EXPECT_SAYS(error("expect = \"lower\""),
              "file.toml:15: expect = \"lower\": expected one of less, at_most, at_least, more");
  EXPECT_SAYS(error("expect = \"less\"", false), "expect: expected over = { ... } beside it");
  EXPECT_SAYS(error("stated = 2", false), "file.toml:14: stated: expected over");
  EXPECT_SAYS(error("stated = 0"), "stated = 0: expected a number from 1e-09 to 1000000000");
  EXPECT_SAYS(error("difference = true\nstated = 0"), "a difference that is not 0");
  EXPECT_EQ(error("difference = true\nstated = -0.5"), "no error");
  EXPECT_SAYS(error("difference = true\nequals = 0", false), "difference = true: expected over");
  EXPECT_SAYS(error("equals = \"none\"", false), "equals = \"none\": expected a number");
  EXPECT_SAYS(error("equals = 0\nfigure = 2", false), "figure = 2: expected stated = ... beside");
  EXPECT_SAYS(error("expect = \"less\"\nfor_each = [\"worker\"]"),
              "for_each = [\"worker\"]: expected a list of keys");
  EXPECT_SAYS(error("at_leest = 0", false), "did you mean \"at_least\"");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[claim]]\nquote = \"q\"\nmetric = \"loss\"\nequals = 0\n")),
              "of = nothing: expected { key = value, ... }");
}

TEST(Experiment, AFileSaysWhatItDoesNotRunHowLongItTakesAndWhatItIsCalibratedWith) {
  const std::string head = "minutes = 2.5\ncalibration = [\"SAFusion (HPDC 25)/Fig15a/WFBP\"]\n";
  const auto claim = [](const std::string& source) {
    return "[[claim]]\nquote = \"q\"\nmetric = \"throughput\"\nsource = \"" + source +
           "\"\nof = { method = \"wfbp\", workers = 2 }\n"
           "over = { method = \"dense\", workers = 2 }\nstated = 2\n";
  };
  const auto experiment =
      Parse(head + WithLine("", claim("SAFusion (HPDC 25)/Fig14a") +
                                    "[[not_run]]\nwhat = \"a GPU\"\nreason = \"there is none\"\n"));
  EXPECT_EQ(experiment.minutes, 2.5);
  EXPECT_EQ(experiment.calibration, std::vector<std::string>{"SAFusion (HPDC 25)/Fig15a/WFBP"});
  ASSERT_EQ(experiment.not_run.size(), 1u);
  EXPECT_EQ(experiment.not_run[0].what, "a GPU");
  EXPECT_EQ(experiment.not_run[0].reason, "there is none");
  EXPECT_EQ(experiment.parts[0].claims.at(0).source, "SAFusion (HPDC 25)/Fig14a");
  EXPECT_EQ(experiment.cells(), 4u);

  EXPECT_SAYS(ErrorOf(head + WithLine("", claim("SAFusion (HPDC 25)/Fig15a/WFBP"))),
              "file.toml:2: [[claim]] \"q\" of part main has source = \"SAFusion (HPDC "
              "25)/Fig15a/WFBP\", which calibration names");
  EXPECT_SAYS(ErrorOf("minutes = 0\n" + WithLine("")),
              "minutes = 0: expected a number from 0.001 to 1000000");
  EXPECT_SAYS(ErrorOf("calibration = [\"Fig15a\"]\n" + WithLine("")),
              "calibration = [\"Fig15a\"]: expected a list of published numbers");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[not_run]]\nwhat = \"a GPU\"\n")), "reason");
  EXPECT_SAYS(ErrorOf(WithLine("", "[[not_run]]\nwhy = \"\"\n")), "why");
}

}  // namespace
}  // namespace sparfuse::harness
