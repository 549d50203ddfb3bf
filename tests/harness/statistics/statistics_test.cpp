// Tests intervals, verdicts, the arithmetic of tables, and whether two systems agree on a ratio.
#include "harness/statistics/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "harness/report/tables/table.hpp"
#include "harness/wording/numbers.hpp"
#include "tests/harness/report/made_results.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using Values = std::vector<double>;

TEST(Statistics, TQuantilesAreThoseOfTheTables) {
  // Standard tables of Student's t, to their printed digits.
  EXPECT_NEAR(StudentTQuantile(0.975, 1), 12.7062, 5e-5);
  EXPECT_NEAR(StudentTQuantile(0.975, 2), 4.30265, 5e-6);
  EXPECT_NEAR(StudentTQuantile(0.975, 6), 2.44691, 5e-6);
  EXPECT_NEAR(StudentTQuantile(0.95, 10), 1.81246, 5e-6);
  EXPECT_NEAR(StudentTQuantile(0.025, 4), -2.77645, 5e-6);
  EXPECT_NEAR(StudentTQuantile(0.975, 1e6), 1.95996, 1e-5);
}

TEST(Statistics, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(Median(std::vector{3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(Median(std::vector{4.0, 1.0, 2.0, 3.0}), 2.5);
}

// Of 10 values, the second to the ninth cover 1 - 22/1024 of the medians, 2.2994 standard errors to
// either side. Of 4 values, all of them cover 7/8, which is 1.5341 standard errors.
TEST(Statistics, MedianEstimatesCountOrderStatistics) {
  const auto ten =
      MedianEstimate(std::vector{1.0, 10.0, 2.0, 9.0, 3.0, 8.0, 4.0, 7.0, 5.0, 1000.0});
  EXPECT_EQ(ten.value, 6.0);
  EXPECT_NEAR(ten.standard_error, 0.5 * (10.0 - 2.0) / 2.2994, 1e-4);
  const auto four = MedianEstimate(std::vector{4.0, 1.0, 2.0, 3.0});
  EXPECT_NEAR(four.standard_error, 0.5 * 3 / 1.5341, 1e-4);
  EXPECT_NEAR(four.relative_error(), 0.5 * 3 / 1.5341 / 2.5, 1e-4);
  EXPECT_EQ(MedianEstimate(std::vector{5.0}).standard_error, 0);
  EXPECT_EQ(MedianEstimate(std::vector{0.0, 0.0}).relative_error(), 0);
}

TEST(Statistics, MedianEstimatesAreOffAsOftenAsTheySay) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int i = 0; i < kTrials; ++i) {
    std::vector<double> values(50);
    for (double& value : values) value = std::exp(normal(random));  // skewed, median 1
    const Estimate estimate = MedianEstimate(values);
    covered += std::abs(estimate.value - 1) <= 1.96 * estimate.standard_error;
  }
  EXPECT_NEAR(covered / double{kTrials}, 0.95, 0.02);
  EXPECT_LT(MedianEstimate(std::vector<double>(3000, 2.0)).standard_error, 1e-12);
}

TEST(Statistics, PairedRatiosUseTheBlocksThatBothHave) {
  const auto ratio = LogInterval(
      OfBlocks(RatiosByBlock({{0, 2.0}, {1, 4.0}, {2, 100.0}}, {{0, 1.0}, {1, 2.0}, {3, 1.0}})));
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->n, 2u);
  EXPECT_NEAR(ratio->value, 2, 1e-12);
  EXPECT_NEAR(ratio->low, 2, 1e-12);  // equal ratios: no spread between blocks
  EXPECT_TRUE(RatiosByBlock({{0, 1.0}}, {{1, 1.0}}).empty());
  EXPECT_FALSE(LogInterval(std::vector{1.0, 0.0}));
}

TEST(Statistics, IntervalsCoverTheTruthAsOftenAsTheySay) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> noise(std::log(1.3), 0.2);
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int i = 0; i < kTrials; ++i) {
    std::vector<double> ratios(5);
    for (auto& ratio : ratios) ratio = std::exp(noise(random));
    const auto interval = LogInterval(ratios);
    covered += interval->low <= 1.3 && interval->high >= 1.3;
  }
  // Four standard deviations of a binomial count around 95 %.
  EXPECT_NEAR(covered / double{kTrials}, kConfidence, 4 * std::sqrt(0.95 * 0.05 / kTrials));
}

TEST(Statistics, Verdicts) {
  const auto interval = [](double low, double value, double high) {
    return std::optional(Interval{value, low, high, 7});
  };
  EXPECT_EQ(Judge(interval(1.45, 1.5, 1.55), 1.5, true, false), Verdict::kReproduced);
  EXPECT_EQ(Judge(interval(1.45, 1.5, 1.55), 1.5, false, false), Verdict::kConsistentModelled);
  EXPECT_EQ(Judge(interval(1.1, 1.2, 1.3), 1.5, true, false), Verdict::kDirectionOnly);
  EXPECT_EQ(Judge(interval(0.7, 0.8, 0.9), 1.5, true, false), Verdict::kNotReproduced);
  EXPECT_EQ(Judge(interval(0.9, 1.2, 1.6), 1.5, true, false), Verdict::kInconclusive);
  EXPECT_EQ(Judge(std::nullopt, 1.5, true, false), Verdict::kNotRun);
  const std::optional<Interval> single = Interval{1.5, 1.5, 1.5, 1};
  EXPECT_EQ(Judge(single, 1.5, true, false), Verdict::kInconclusive);
  EXPECT_EQ(Judge(single, 1.5, false, true), Verdict::kConsistentModelled);
}

TEST(Statistics, DifferencesArePairedAndExactWhereBlocksAgree) {
  // differences 1, 3: mean 2, standard error 1, t(0.975, 1) = 12.7062
  const auto difference = PairedDifference({{0, 5.0}, {1, 10.0}, {2, 1.0}}, {{0, 4.0}, {1, 7.0}});
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->n, 2u);
  EXPECT_NEAR(difference->value, 2, 1e-12);
  EXPECT_NEAR(difference->low, 2 - 12.7062, 5e-5);
  EXPECT_NEAR(difference->high, 2 + 12.7062, 5e-5);
  EXPECT_FALSE(PairedDifference({{0, 1.0}}, {{1, 1.0}}));
  const auto tenths = MeanInterval(std::vector(7, 0.1));  // the sum is not exactly 0.7
  EXPECT_EQ(tenths->low, 0.1);
  EXPECT_EQ(tenths->high, 0.1);
}

TEST(Statistics, VerdictsOfBounds) {
  const auto judge = [](double low, double high, Comparison comparison, double slack = 0) {
    return JudgeBound(Interval{(low + high) / 2, low, high, 5}, {comparison, 1}, slack, false);
  };
  using enum Comparison;
  EXPECT_EQ(judge(0.8, 0.9, kLess), Verdict::kHolds);
  EXPECT_EQ(judge(0.8, 1.0, kLess), Verdict::kInconclusive);
  EXPECT_EQ(judge(1.0, 1.0, kLess), Verdict::kDoesNotHold);
  EXPECT_EQ(judge(1.1, 1.2, kLess), Verdict::kDoesNotHold);
  EXPECT_EQ(judge(1.1, 1.2, kMore), Verdict::kHolds);
  EXPECT_EQ(judge(1.0, 1.2, kMore), Verdict::kInconclusive);
  EXPECT_EQ(judge(0.8, 0.9, kMore), Verdict::kDoesNotHold);
  EXPECT_EQ(judge(1.0, 1.0, kAtMost), Verdict::kHolds);
  EXPECT_EQ(judge(0.9, 1.05, kAtMost), Verdict::kInconclusive);
  EXPECT_EQ(judge(0.9, 1.05, kAtMost, 0.08), Verdict::kHolds);
  EXPECT_EQ(judge(0.9, 1.2, kAtMost, 0.08), Verdict::kInconclusive);
  EXPECT_EQ(judge(1.01, 1.05, kAtMost, 0.08), Verdict::kDoesNotHold);
  EXPECT_EQ(judge(0.95, 1.2, kAtLeast, 0.08), Verdict::kHolds);
  EXPECT_EQ(judge(0.8, 1.2, kAtLeast, 0.08), Verdict::kInconclusive);
  EXPECT_EQ(judge(0.8, 0.9, kAtLeast, 0.08), Verdict::kDoesNotHold);
  EXPECT_EQ(judge(1.0, 1.0, kEquals), Verdict::kHolds);
  EXPECT_EQ(judge(0.9, 1.1, kEquals), Verdict::kDoesNotHold);

  const std::optional<Interval> single = Interval{0.5, 0.5, 0.5, 1};
  EXPECT_EQ(JudgeBound(single, {kLess, 1}, 0, false), Verdict::kInconclusive);
  EXPECT_EQ(JudgeBound(single, {kLess, 1}, 0, true), Verdict::kHolds);
  EXPECT_EQ(JudgeBound(single, {kEquals, 0.5}, 0, false), Verdict::kHolds);
  EXPECT_EQ(JudgeBound(std::nullopt, {kEquals, 0}, 0, false), Verdict::kNotRun);
}

TEST(Statistics, VerdictsOfStatedDifferences) {
  const auto judge = [](double low, double high, double stated) {
    return JudgeDifference(Interval{(low + high) / 2, low, high, 5}, stated, true, false);
  };
  EXPECT_EQ(judge(0.01, 0.03, 0.02), Verdict::kReproduced);
  EXPECT_EQ(judge(-0.03, -0.01, -0.02), Verdict::kReproduced);
  EXPECT_EQ(judge(0.01, 0.03, 0.05), Verdict::kDirectionOnly);
  EXPECT_EQ(judge(0.01, 0.03, -0.02), Verdict::kNotReproduced);
  EXPECT_EQ(judge(-0.01, 0.03, 0.02), Verdict::kInconclusive);
}

Part TwoMethods(const Catalog& catalog) {
  return ParseExperiment(
             TomlFile::Parse(
                 "id = \"t\"\n[defaults]\nmode = \"measured\"\nworkload = \"digits-resnet\"\n"
                 "workers = 2\n[[axis]]\nmethod = [\"dense\", \"wfbp\", \"syncea\"]\n"
                 "[[exclude]]\nwhen = { method = \"syncea\" }\nreason = \"no meaning\"\n"
                 "[[claim]]\nquote = \"2x\"\nmetric = \"throughput\"\nof = { method = \"wfbp\" }\n"
                 "over = { method = \"dense\" }\nstated = 2\n",
                 "f.toml"),
             catalog, "/nonexistent")
      .parts[0];
}

TrialRow Row(const Part& part, const Catalog& catalog, std::size_t cell, int block,
             double throughput) {
  TrialRow row = RowOf(catalog, part.cells[cell], block, 1 / throughput);
  row.trial_id = std::to_string(cell) + "-" + std::to_string(block);
  row.metrics = {{"throughput", throughput}, {"step_seconds", 1 / throughput}};
  return row;
}

TEST(Table, RatiosFailuresAndExclusions) {
  const Catalog catalog = SmallCatalog();
  const Part part = TwoMethods(catalog);
  std::vector<TrialRow> rows;
  for (int block = 0; block < 3; ++block) {
    rows.push_back(Row(part, catalog, 0, block, 100 + block));
    rows.push_back(Row(part, catalog, 1, block, 2 * (100 + block)));
  }
  auto result = ResultOf(part, catalog, rows);
  const Table table = ResultTable(result, catalog);
  const std::string text = Render(table, TableFormat::kMarkdown);
  EXPECT_SAYS(text, "2.00x [2.00, 2.00]");
  EXPECT_SAYS(text, "images/s");
  EXPECT_SAYS(text, "– [1]");
  EXPECT_SAYS(text, "[1] no meaning");
  EXPECT_SAYS(text, "measured; CPU, 2 cores");
  EXPECT_SAYS(text, "preliminary: 3 block(s)");
  EXPECT_EQ(JudgeClaims(result).at(0).verdict, Verdict::kReproduced);

  rows.back().status = "failed";
  rows.back().failure_kind = "comm";
  std::vector<TrialRow> only_failed = {rows[0], rows.back()};
  result = ResultOf(part, catalog, only_failed);
  EXPECT_EQ(result.cells[1].failure, "comm");
  EXPECT_EQ(JudgeClaims(result).at(0).verdict, Verdict::kNotRun);
  only_failed.back().status = "invalid";
  EXPECT_EQ(JudgeClaims(ResultOf(part, catalog, only_failed)).at(0).verdict, Verdict::kInvalid);
}

TEST(Table, ClaimsAreShownWithWhatWasExpectedAndFound) {
  const Catalog catalog = SmallCatalog();
  Part part = TwoMethods(catalog);
  const auto claim = [&](Compared compared, const char* metric, Bound bound) {
    Claim made;
    made.quote = "q";
    made.metric = metric;
    made.compared = compared;
    made.of_cell = 1;
    made.over_cell = compared == Compared::kValue ? 1 : 0;
    made.bound = bound;
    part.claims.push_back(made);
  };
  part.claims.clear();
  claim(Compared::kRatio, "step_seconds", {Comparison::kLess, 1});
  claim(Compared::kDifference, "step_seconds", {Comparison::kMore, 0});
  claim(Compared::kValue, "tensors_missing", {Comparison::kEquals, 0});
  claim(Compared::kRatio, "tensors_missing", {Comparison::kLess, 1});
  claim(Compared::kValue, "loss", {Comparison::kEquals, 0});
  std::vector<TrialRow> rows;
  for (int block = 0; block < 5; ++block) {
    for (std::size_t cell = 0; cell < 2; ++cell) {
      rows.push_back(Row(part, catalog, cell, block, 100.0 * static_cast<double>(1 + cell)));
      rows.back().metrics.Set("tensors_missing", cell == 0 ? 3 : 0);
    }
  }
  const auto judged = JudgeClaims(ResultOf(part, catalog, rows));
  const Table table = ClaimTable(ResultOf(part, catalog, rows));
  const auto shown = [&](std::size_t i) {
    const auto& row = table.rows.at(i);
    return row[2] + " | " + row[3] + " | " + row[4] + " | " + row[6];
  };
  EXPECT_EQ(shown(0), "< 1x | 0.50x [0.50, 0.50] | 5 | holds");
  EXPECT_EQ(shown(1), "difference > 0 s | -5.00 ms [-5.00 ms, -5.00 ms] | 5 | does not hold");
  EXPECT_EQ(shown(2), "value = 0 | 0 [0, 0] | 5 | holds");
  EXPECT_EQ(shown(3), "< 1x | a value is 0 | 5 | inconclusive");
  EXPECT_EQ(shown(4), "value = 0 | – | 0 | not run");
  EXPECT_FALSE(judged[0].fails_strict());
  EXPECT_TRUE(judged[1].fails_strict());
  EXPECT_FALSE(judged[3].fails_strict());
  EXPECT_TRUE(judged[4].fails_strict());
  rows.resize(6);
  EXPECT_EQ(ClaimTable(ResultOf(part, catalog, rows)).rows.at(0)[6], "holds, preliminary");
}

TEST(Table, MachinesRevisionsAndBadTrialsAreNeverMixed) {
  const Catalog catalog = SmallCatalog();
  const Part part = TwoMethods(catalog);
  std::vector<TrialRow> rows;
  for (int block = 0; block < 3; ++block) rows.push_back(Row(part, catalog, 0, block, 100));
  rows[1].system_hash = "another";
  rows[2].annotations = {"fan"};
  auto result = ResultOf(part, catalog, rows);
  EXPECT_EQ(result.cells[0].trials.size(), 1u);
  EXPECT_EQ(result.other_systems, 1u);
  for (auto& row : rows) row.revisions["method:dense"] = 99;
  EXPECT_EQ(ResultOf(part, catalog, rows).cells[0].failure, "stale");
  EXPECT_EQ(ResultOf(part, catalog, {}).cells[0].failure, "not run");
}

TEST(Prediction, ErrorsApartForOversubscribedCellsAndOrderWhereIntervalsSeparate) {
  const Catalog catalog = SmallCatalog();
  const Part part = TwoMethods(catalog);
  const Part twins = PredictedPart(part);
  ASSERT_EQ(twins.cells.size(), 2u);
  std::vector<TrialRow> rows;
  for (int block = 0; block < 3; ++block) {
    rows.push_back(Row(part, catalog, 0, block, 100 + 0.1 * block));
    rows.push_back(Row(part, catalog, 1, block, 200 + 0.1 * block));
  }
  for (std::size_t cell = 0; cell < 2; ++cell) {
    TrialRow row = Row(twins, catalog, cell, 0, cell == 0 ? 80 : 160);
    row.system = {{"cluster", "this-machine"}, {"profile_hash", "x"}};
    row.metrics.Set("local_seconds", cell == 0 ? 0.008 : 0.003);
    row.metrics.Set("wire_seconds", cell == 0 ? 0.006 : 0.004);
    rows.push_back(row);
  }
  const auto compare = [&] {
    return ComparePrediction(ResultOf(part, catalog, rows), ResultOf(twins, catalog, rows));
  };
  auto summary = compare();
  ASSERT_EQ(summary.cells.size(), 2u);
  EXPECT_NEAR(*summary.median_error, 0.25, 0.002);
  EXPECT_NEAR(*summary.longest_median_error, 0.2, 0.002);
  EXPECT_NEAR(*summary.sum_median_error, 0.4, 0.002);
  EXPECT_FALSE(summary.oversubscribed_median_error);
  EXPECT_EQ(summary.ordered_pairs, 1u);
  EXPECT_EQ(summary.agreeing_pairs, 1u);
  rows.back().metrics.Set("step_seconds", 1.0);  // the model now calls wfbp the slower one
  EXPECT_EQ(compare().agreeing_pairs, 0u);
  for (auto& row : rows) {
    if (row.system.contains("cores")) row.system["cores"] = 1;
  }
  summary = compare();
  EXPECT_FALSE(summary.median_error);
  EXPECT_TRUE(summary.oversubscribed_median_error);
  EXPECT_EQ(summary.ordered_pairs, 0u);
}

TEST(Table, FormatsQuoteWhatTheyMust) {
  Table table;
  table.title = "a_b";
  table.columns = {"x", "y"};
  table.rows = {{"1,5", "50 % & \"more\""}};
  EXPECT_SAYS(Render(table, TableFormat::kLatex), "50 \\% \\& ''more''");
  table.rows = {{"a\\b~c^d", ""}};
  EXPECT_SAYS(Render(table, TableFormat::kLatex),
              "a\\textbackslash{}b\\textasciitilde{}c\\textasciicircum{}d");
  EXPECT_EQ(Quantity(0.0123, "s"), "12.3 ms");
  EXPECT_EQ(Quantity(2.5e6, "B"), "2.50 MB");
  EXPECT_EQ(Quantity(3412, "1"), "3\u2009412");
}

Values LogNormal(std::mt19937_64& random, double center, double deviation, std::size_t n) {
  std::normal_distribution<double> normal(0, deviation);
  Values values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(center * std::exp(normal(random)));
  return values;
}

TEST(Contrast, IsTheIntervalOfLogarithmsWithTheFreedomOfTheFewerBlocks) {
  // Logarithms 0, 1, 2 and 0, 2, 4, 6: means 1 and 3, variances 1 and 20/3. The standard error is
  // sqrt(1/3 + 5/3) = sqrt(2), with 2 degrees of freedom, for which t(0.975) is 4.30265.
  const Values first = {1, std::exp(1.0), std::exp(2.0)};
  const Values second = {1, std::exp(2.0), std::exp(4.0), std::exp(6.0)};
  const Contrast contrast = ContrastOf(first, second, 0.05);
  EXPECT_NEAR(std::log(contrast.ratio.value), -2, 1e-12);
  EXPECT_NEAR(std::log(contrast.ratio.high), -2 + 4.30265 * std::sqrt(2.0), 1e-4);
  EXPECT_NEAR(std::log(contrast.ratio.low), -2 - 4.30265 * std::sqrt(2.0), 1e-4);
  EXPECT_EQ(contrast.ratio.n, 3u);
  EXPECT_EQ(contrast.agreement, Agreement::kUndecided);
}

TEST(Contrast, EqualValuesNeverDiffer) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    const Values values = LogNormal(random, 1.3, 0.001 * i, 1 + static_cast<std::size_t>(i % 6));
    const Contrast contrast = ContrastOf(values, values, 0.05);
    EXPECT_TRUE(contrast.agreement == Agreement::kAgree ||
                contrast.agreement == Agreement::kUndecided);
    EXPECT_DOUBLE_EQ(contrast.ratio.value, 1);
  }
  EXPECT_EQ(ContrastOf(Values{1.2, 1.2}, Values{1.2, 1.2}, 0.05).agreement, Agreement::kAgree);
}

TEST(Contrast, OneBlockDecidesNothing) {
  const Contrast contrast = ContrastOf(Values{2}, Values{1, 1.01}, 0.05);
  EXPECT_EQ(contrast.agreement, Agreement::kUndecided);
  EXPECT_EQ(contrast.blocks_needed, 0u);
  EXPECT_FALSE(contrast.ratio.has_bounds());
}

TEST(Contrast, SaysOnWhichSideItIsLarger) {
  const Values large = {1.50, 1.51, 1.49}, small = {1.20, 1.21, 1.19};
  EXPECT_EQ(ContrastOf(large, small, 0.05).agreement, Agreement::kFirst);
  EXPECT_EQ(ContrastOf(small, large, 0.05).agreement, Agreement::kSecond);
  // Values certainly within the margin agree, however certain their difference is.
  EXPECT_EQ(ContrastOf(large, small, 0.5).agreement, Agreement::kAgree);
}

TEST(Contrast, ClaimsAtMostOneInTwentyOfEquals) {
  std::mt19937_64 random(11);
  constexpr int kPairs = 1000;
  for (const double deviation : {0.01, 0.05, 0.3}) {
    int claims = 0;
    for (int i = 0; i < kPairs; ++i) {
      const Values first = LogNormal(random, 1, deviation, 3 + static_cast<std::size_t>(i % 6));
      const Values second = LogNormal(random, 1, 2 * deviation, 3);
      const Agreement agreement = ContrastOf(first, second, 0.05).agreement;
      claims += agreement == Agreement::kFirst || agreement == Agreement::kSecond;
    }
    EXPECT_LE(claims, kPairs / 20) << deviation;
  }
}

TEST(Contrast, AsManyBlocksAsItAsksForDecide) {
  std::mt19937_64 random(7);
  int undecided = 0;
  int decided = 0;
  for (int i = 0; i < 200; ++i) {
    const Values first = LogNormal(random, 1.1, 0.05, 4);
    const Values second = LogNormal(random, 1, 0.05, 4);
    const Contrast contrast = ContrastOf(first, second, 0.05);
    if (contrast.agreement != Agreement::kUndecided) continue;
    ++undecided;
    EXPECT_GT(contrast.blocks_needed, 4u);
    // More blocks repeat the four values.
    Values more_first, more_second;
    for (std::size_t block = 0; block < 2 * contrast.blocks_needed; ++block) {
      more_first.push_back(first[block % 4]);
      more_second.push_back(second[block % 4]);
    }
    decided += ContrastOf(more_first, more_second, 0.05).agreement != Agreement::kUndecided;
  }
  EXPECT_GT(undecided, 20);
  EXPECT_EQ(decided, undecided);
}

}  // namespace
}  // namespace sparfuse::harness
