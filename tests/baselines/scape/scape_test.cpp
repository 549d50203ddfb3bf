// Tests SCAPE's exchange against plain code: masks, moments, drawn elements, residuals and bytes.
#include "baselines/scape/scape.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "baselines/registry.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

using baselines::AddRandomPositions;
using baselines::DrawnInStep;

constexpr std::size_t kN = 240;

std::unique_ptr<Collective> MakeMask(Options options = {}) {
  return MakeCollective(FindCollective("moment-mask"), options);
}

std::set<std::size_t> IndicesOf(const std::vector<float>& values) {
  std::set<std::size_t> at;
  for (const auto& [index, value] : NonZeros(values)) at.insert(index);
  return at;
}

TEST(Scape, DrawsTheShareOverSteps) {
  const auto drawn = [](std::size_t kept, double share) {
    std::vector<std::size_t> steps;
    for (std::uint64_t step = 0; step < 10; ++step) steps.push_back(DrawnInStep(kept, share, step));
    return steps;
  };
  EXPECT_EQ(drawn(1, 0.25), (std::vector<std::size_t>{0, 0, 0, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(drawn(6, 0.25), (std::vector<std::size_t>{1, 2, 1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(drawn(6, 0), std::vector<std::size_t>(10, 0));
  EXPECT_EQ(drawn(6, 1), std::vector<std::size_t>(10, 6));
}

TEST(Scape, DrawnPositionsAreOthersAscendingAndAllEquallyLikely) {
  std::vector<int> drawn(10);
  for (std::uint64_t step = 0; step < 4000; ++step) {
    std::vector<std::uint32_t> positions = {2, 7};
    AddRandomPositions(10, 3, 1, step, positions);
    ASSERT_EQ(positions.size(), 5u);
    EXPECT_TRUE(std::ranges::is_sorted(positions));
    EXPECT_EQ(std::set(positions.begin(), positions.end()).size(), 5u);
    for (const std::uint32_t at : positions) ++drawn[at];
  }
  for (std::size_t at = 0; at < 10; ++at) {
    if (at == 2 || at == 7) {
      EXPECT_EQ(drawn[at], 4000);
    } else {
      EXPECT_NEAR(drawn[at], 4000 * 3 / 8, 150) << at;  // five standard deviations
    }
  }
  std::vector<std::uint32_t> all = {0, 4};
  AddRandomPositions(6, 4, 9, 0, all);
  EXPECT_EQ(all, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

// The first step sends everything. Later, what the moment says is sent, and the rest is returned to
// the residual untouched.
TEST(Scape, FollowsTheMomentOfTheAverages) {
  constexpr std::size_t kWorld = 3, kSteps = 6, kKept = 24;
  constexpr float kBeta = 0.75f;
  std::vector<Sent> steps;
  for (unsigned step = 0; step < kSteps; ++step) {
    steps.push_back(Accumulated(Noises(kWorld, kN, 10 * step), kKept));
  }
  const auto collective = MakeMask({{"beta", 0.75}, {"random", 0.0}});
  const auto outcomes = RunExchanges(*collective, steps);
  std::vector<float> moment(kN);
  for (std::size_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    std::vector<std::size_t> order(kN);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](std::size_t i) { return std::fabs(moment[i]); });
    std::set<std::size_t> mask(order.begin(), order.begin() + (step == 0 ? kN : kKept));
    EXPECT_EQ(outcomes[step][0].dense, step == 0);
    EXPECT_EQ(outcomes[step][0].seen, std::vector<std::uint64_t>{step == 0 ? 1u : 0u});
    EXPECT_EQ(IndicesOf(outcomes[step][0].applied), mask);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_EQ(outcomes[step][rank].applied, outcomes[step][0].applied);
      EXPECT_TRUE(outcomes[step][rank].increasing);
      for (std::size_t i = 0; i < kN; ++i) {
        const float x = steps[step].accumulated[rank][i];
        EXPECT_EQ(x + outcomes[step][rank].returned[i], mask.count(i) == 1 ? 0 : x);
      }
    }
    for (std::size_t i = 0; i < kN; ++i) {
      const Vectors& x = steps[step].accumulated;
      const float sum = mask.count(i) == 1 ? x[0][i] + x[1][i] + x[2][i] : 0;
      EXPECT_NEAR(outcomes[step][0].applied[i], sum, 1e-5);
      moment[i] = kBeta * moment[i] + (1 - kBeta) / kWorld * outcomes[step][0].applied[i];
    }
  }
}

// Element 200 has no gradient in the first step and a large one in all others.
TEST(Scape, AnElementOutsideTheMaskReturnsIfItIsDrawn) {
  const auto sent_in = [](double random) {
    std::vector<Sent> steps;
    for (unsigned step = 0; step < 80; ++step) {
      Vectors x = {Noise(kN, step)};
      for (std::size_t i = 0; i < 24; ++i) x[0][i] += 10;
      x[0][200] = step == 0 ? 0.0f : 1000.0f;
      steps.push_back(Accumulated(x, 24));
    }
    const auto outcomes = RunExchanges(*MakeMask({{"random", random}}), steps);
    std::vector<std::size_t> in;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      if (outcomes[step][0].applied[200] != 0) in.push_back(step);
    }
    return in;
  };
  EXPECT_TRUE(sent_in(0).empty());
  const std::vector<std::size_t> in = sent_in(0.25);
  ASSERT_FALSE(in.empty());
  EXPECT_EQ(in.size(), 80 - in.front());  // it stays in the mask, since its moment is the largest
}

TEST(Scape, KeepsExactlyAsManyElementsEvenOfZeros) {
  for (const std::size_t kept : {std::size_t{1}, std::size_t{7}, kN - 1, kN}) {
    for (const double random : {0.0, 0.3, 1.0}) {
      SCOPED_TRACE(std::to_string(kept) + " " + std::to_string(random));
      const Vectors zeros(2, std::vector<float>(kN));
      const auto outcomes =
          RunExchanges(*MakeMask({{"random", random}}),
                       {Accumulated(zeros, kept), Accumulated(Noises(2, kN, 1), kept)});
      EXPECT_EQ(outcomes[1][0].summed, kept);
      EXPECT_EQ(IndicesOf(outcomes[1][0].applied).size(), kept);
    }
  }
}

TEST(Scape, SendsTheValuesAloneAndSaysSo) {
  constexpr std::size_t kWorld = 4;
  const auto collective = MakeMask();
  const std::vector<Sent> steps(2, Accumulated(Noises(kWorld, kN), 24));
  const auto outcomes = RunExchanges(*collective, steps);
  for (std::size_t step = 0; step < 2; ++step) {
    const RoundPlan plan = ExpectCounted(*collective, steps[step], step, outcomes[step], {4, 1});
    const std::size_t floats = step == 0 ? kN : 24 + 2;  // two words of a hash
    EXPECT_EQ(BytesSent(outcomes[step]), 2 * (kWorld - 1) * floats * sizeof(float));
    EXPECT_EQ(*plan.sums, step == 0 ? kN : 24);
    EXPECT_EQ(plan.dense_sums, step == 0);
    // A model expects the same of the same step.
    ExchangeSizes expected = RecordedSizes(*collective, steps[step], step, outcomes[step]);
    const auto seen = expected.seen;
    collective->Expect(OverlapModel(), {4, 1}, expected);
    EXPECT_EQ(expected.seen, seen);
  }
}

TEST(Scape, RanksWithOtherMasksAreFoundOut) {
  ExpectError(FailureKind::kComm, {}, [] {
    RunUnlike(Noises(2, kN, 1), [](int rank) {
      return std::pair(MakeMask({{"seed", std::int64_t{1 + rank}}}), ExchangeShape{kN, 24});
    });
  });
}

}  // namespace
}  // namespace sparfuse::testing
