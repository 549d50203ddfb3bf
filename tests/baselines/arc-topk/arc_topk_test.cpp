// Tests ARC-Top-K: rows, sketches that agree with exact norms, both memories against plain code,
// and the sent rows and bytes.
#include "baselines/arc-topk/arc_topk.hpp"

#include <gtest/gtest.h>

#include <set>

#include "baselines/registry.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using baselines::LargestRows;
using baselines::RowShape;
using Shape = std::vector<std::int64_t>;

TEST(ArcTopK, RowsAreOfTheFirstDimensionOrOf256Elements) {
  const Shape shape = {10, 3, 4};
  const RowShape matrix(shape, 120);
  EXPECT_EQ(matrix.rows, 10u);
  EXPECT_EQ(matrix.length, 12u);
  EXPECT_EQ(matrix.LengthOf(9), 12u);
  const RowShape vector({}, 600);
  EXPECT_EQ(vector.rows, 3u);
  EXPECT_EQ(vector.LengthOf(1), 256u);
  EXPECT_EQ(vector.LengthOf(2), 88u);
  const RowShape small({}, 7);
  EXPECT_EQ(small.rows, 1u);
  EXPECT_EQ(small.LengthOf(0), 7u);
  const RowShape none({}, 0);
  EXPECT_EQ(none.Kept(0.5), 0u);
}

TEST(ArcTopK, KeepsTheCeilingOfThePartThatIsAskedFor) {
  const auto kept = [](std::int64_t rows, double density) {
    const Shape shape = {rows, 5};
    return RowShape(shape, static_cast<std::size_t>(rows) * 5).Kept(density);
  };
  EXPECT_EQ(kept(10, 0.2), 2u);
  EXPECT_EQ(kept(11, 0.2), 3u);
  EXPECT_EQ(kept(30, 0.1), 3u);  // 3.0000000000000004
  EXPECT_EQ(kept(4, 0.01), 1u);
  EXPECT_EQ(kept(4, 1), 4u);
}

TEST(ArcTopK, LargestRowsAreByNormAndTheFirstOfEqual) {
  const std::vector<float> sketch = {1, 0, 0, -2, 2, 0, 1, 1, 0, 2};
  EXPECT_EQ(LargestRows(sketch, 2, 2), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(LargestRows(sketch, 2, 3), (std::vector<std::uint32_t>{1, 2, 4}));
  EXPECT_EQ(LargestRows(sketch, 2, 9).size(), 5u);
}

constexpr std::size_t kRows = 40, kLength = 6, kN = kRows * kLength;
const Shape kShape = {kRows, kLength};

// The payloads of one matrix of which `kept` elements are sent.
Sent Of(const Vectors& x, std::size_t kept) { return Accumulated(x, kept, {{3, 0, kN, kShape}}); }

std::unique_ptr<Collective> MakeArcRows(Options options = {}) {
  return MakeCollective(FindCollective("arc-rows"), options);
}

std::set<std::size_t> AppliedRows(const Outcome& outcome) {
  std::set<std::size_t> rows;
  for (std::size_t i = 0; i < kN; ++i) {
    if (outcome.applied[i] != 0) rows.insert(i / kLength);
  }
  return rows;
}

// Rows 3, 17 and 39 are large in the sum over ranks; row 5 is large on each rank, but not in the
// sum.
TEST(ArcTopK, ChoosesTheRowsThatAreLargeInTheSum) {
  Vectors x = Noises(2, kN, 1);
  for (auto& own : x) {
    for (float& value : own) value *= 0.01f;
    for (const std::size_t row : {3, 17, 39}) {
      for (std::size_t i = 0; i < kLength; ++i) own[row * kLength + i] += 1 + float(i);
    }
  }
  for (std::size_t i = 0; i < kLength; ++i) {
    x[0][5 * kLength + i] += 50;
    x[1][5 * kLength + i] -= 50;
  }
  for (const std::int64_t columns : {1, 4, 32}) {
    const auto collective = MakeArcRows({{"sketch", columns}});
    const auto steps = RunExchanges(*collective, {Of(x, 3 * kLength), Of(x, 3 * kLength)});
    for (const auto& outcomes : steps) {
      EXPECT_EQ(AppliedRows(outcomes[0]), (std::set<std::size_t>{3, 17, 39})) << columns;
      for (std::size_t i = 0; i < kN; ++i) {
        const bool sent = outcomes[0].applied[i] != 0;
        EXPECT_EQ(outcomes[0].applied[i], sent ? x[0][i] + x[1][i] : 0);
        EXPECT_EQ(x[1][i] + outcomes[1].returned[i], sent ? 0 : x[1][i]);
      }
      EXPECT_EQ(outcomes[1].applied, outcomes[0].applied);
    }
  }
}

// Rows are chosen anew in every step, since the sketch's columns are drawn from the step.
TEST(ArcTopK, EachStepHasASketchOfItsOwn) {
  const Vectors x = {Noise(kN, 1)};
  Vectors doubled = x;
  for (std::size_t i = 0; i < kLength; ++i) doubled[0][7 * kLength + i] *= 1.5f;
  // A row 1.5 times as large as the others is among the first half in most steps.
  std::vector<Sent> steps(60, Of(doubled, kN / 2));
  const auto outcomes = RunExchanges(*MakeArcRows(), steps);
  std::set<std::set<std::size_t>> choices;
  int chosen = 0;
  for (const auto& step : outcomes) {
    choices.insert(AppliedRows(step[0]));
    chosen += static_cast<int>(AppliedRows(step[0]).count(7));
    EXPECT_EQ(AppliedRows(step[0]).size(), kRows / 2);
  }
  EXPECT_GT(chosen, 40);
  EXPECT_GT(choices.size(), 50u);
}

TEST(ArcTopK, SendsTheSketchAndTheRowsAndSaysSo) {
  constexpr std::size_t kWorld = 4;
  const auto collective = MakeArcRows();
  const Sent sent = Of(Noises(kWorld, kN), kN / 5);
  const auto outcomes = RunExchanges(*collective, {sent})[0];
  const RoundPlan plan = ExpectCounted(*collective, sent, 0, outcomes, {kWorld, 1});
  // Two rings: one of 40 x 4 floats, one of 8 rows of 6 floats with two words. Each sends 3/4 of
  // them twice.
  const std::size_t floats = kRows * 4 + 8 * kLength;
  EXPECT_EQ(BytesSent(outcomes), 2 * (kWorld - 1) * (floats + 2) * sizeof(float));
  EXPECT_EQ(*plan.sums, 8 * kLength);
}

TEST(ArcTopK, WhatIsSentWholeHasNoSketch) {
  const Vectors x = Noises(2, kN, 1);
  const auto outcomes = RunExchanges(*MakeArcRows(), {Of(x, kN)})[0];
  for (std::size_t i = 0; i < kN; ++i) EXPECT_EQ(outcomes[0].applied[i], x[0][i] + x[1][i]);
  EXPECT_EQ(outcomes[0].traffic.bytes_sent, (kN + 2) * sizeof(float));
}

// h <- (1 - eta) h + eta g; each rank sends the difference between h and the h that the others
// know.
TEST(ArcTopK, AveragesAreToldByTheirDifferences) {
  constexpr float kEta = 0.25f;
  constexpr std::size_t kWorld = 3, kSteps = 6;
  std::vector<Sent> steps;
  for (unsigned step = 0; step < kSteps; ++step) {
    steps.push_back(Of(Noises(kWorld, kN, 10 * step), kN / 5));
  }
  const auto collective =
      MakeArcRows({{"memory", std::string("ef21m")}, {"eta", static_cast<double>(kEta)}});
  const auto outcomes = RunExchanges(*collective, steps);
  Vectors average = steps[0].accumulated, told = average;
  std::vector<float> sum(kN);
  for (std::size_t i = 0; i < kN; ++i) sum[i] = average[0][i] + average[1][i] + average[2][i];
  for (std::size_t i = 0; i < kN; ++i) EXPECT_NEAR(outcomes[0][0].applied[i], sum[i], 1e-6);
  for (std::size_t step = 1; step < kSteps; ++step) {
    std::set<std::size_t> rows;
    for (std::size_t i = 0; i < kN; ++i) {
      if (outcomes[step][0].applied[i] != outcomes[step - 1][0].applied[i]) {
        rows.insert(i / kLength);
      }
    }
    EXPECT_EQ(rows.size(), 8u);
    for (std::size_t i = 0; i < kN; ++i) {
      for (std::size_t rank = 0; rank < kWorld; ++rank) {
        average[rank][i] = (1 - kEta) * average[rank][i] + kEta * steps[step].accumulated[rank][i];
        if (rows.count(i / kLength) == 0) continue;
        sum[i] += average[rank][i] - told[rank][i];
        told[rank][i] = average[rank][i];
      }
      EXPECT_NEAR(outcomes[step][2].applied[i], sum[i], 1e-5) << i;
    }
    EXPECT_EQ(outcomes[step][2].applied, outcomes[step][0].applied);
    // Nothing remains to be added to the next gradient.
    for (std::size_t i = 0; i < kN; ++i) {
      EXPECT_EQ(steps[step].accumulated[1][i] + outcomes[step][1].returned[i], 0);
    }
  }
}

// The ranks use different densities: the same sketch, but different rows.
TEST(ArcTopK, RanksThatSendOtherRowsAreFoundOut) {
  const Sent sent = Of(Noises(2, kN, 1), kN / 5);
  ExpectError(FailureKind::kComm, {}, [&] {
    RunUnlike(sent.accumulated, [&](int rank) {
      return std::pair(MakeArcRows(), ExchangeShape{kN, kN / (rank == 0 ? 5 : 4), 0, sent.tensors});
    });
  });
}

TEST(ArcTopK, RefusesASketchThatOverflows) {
  const Vectors x = {std::vector<float>(kN, 3e38f)};
  EXPECT_THROW(RunExchanges(*MakeArcRows(), {Of(x, kN / 5)}), Error);
}

}  // namespace
}  // namespace sparfuse::testing
