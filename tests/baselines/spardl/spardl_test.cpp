// Tests SparDL's exchanges: by hand, against the algorithm on dense vectors, and its laws on teams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "tests/baselines/spardl/dense_spardl.hpp"
#include "tests/support/communicators/transport_cases.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::testing {
namespace {

std::vector<Outcome> ExchangeOf(const Form& form, const Vectors& vectors, std::size_t kept) {
  return RunExchanges(*form.Make(), {SentOf(form, vectors, kept)}).front();
}

// --- by hand ---

// Blocks {0, 1} and {2, 3}, with one kept element each. Rank 0 sends its 6 at 3, rank 1 its -4 at
// 0. Then rank 1's block 1 has 1 and 4 + 6 at 2 and 3; rank 0's block 0 has 5 - 4 and 3 at 0 and 1.
TEST(Spardl, CutsWhatHasAccumulatedAndArrived) {
  const auto outcomes = ExchangeOf({}, {{5, 3, 2, 6}, {-4, 1, 1, 4}}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{0, 3, 0, 10}));
    EXPECT_EQ(outcome.traffic.messages_sent, 2u);
    EXPECT_EQ(outcome.traffic.bytes_sent, 2 * kSparseElementBytes);
    EXPECT_TRUE(outcome.seen.empty());
  }
  // Index 0 lost, so that rank 1's -4 there stays in its residual. Index 1 won, and rank 1 keeps
  // its 1 there.
  EXPECT_EQ(outcomes[0].returned, (std::vector<float>{0, -3, 0, -6}));
  EXPECT_EQ(outcomes[1].returned, (std::vector<float>{0, 0, 0, -4}));
}

// The same with each rank's top-2 selection: without rank 1's 1 at index 1 and rank 0's 3.
TEST(Spardl, CutsPayloadsOnRequest) {
  const auto outcomes = ExchangeOf({.lazy = false}, {{5, 0, 0, 6}, {-4, 0, 0, 4}}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{1, 0, 0, 10}));
    EXPECT_EQ(outcome.returned, (std::vector<float>{0, 0, 0, 0}));
    EXPECT_EQ(outcome.seen, (std::vector<std::uint64_t>{1, 1}));
  }
}

// Each team of one has one block and cuts it to one element. Rank 0's 7 and rank 1's 8 fit in k_b =
// 2 places.
TEST(Spardl, TeamsCompareTheirBlocks) {
  const auto outcomes = ExchangeOf({.teams = 2}, {{7, 2, 1}, {1, 3, 8}}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{7, 0, 8}));
    EXPECT_EQ(outcome.seen, (std::vector<std::uint64_t>{1, 2}));  // h = 1, and two indices
  }
  EXPECT_EQ(outcomes[0].returned, (std::vector<float>{-7, 0, 0}));
  EXPECT_EQ(outcomes[1].returned, (std::vector<float>{0, 0, -8}));
}

// Ranks 0 and 1 together have 7, 11 and 4 at 0, 1 and 2, and drop the 4. With the others' 20 at 0
// and 18 at 2, index 2 is applied and index 1 is not. The 4 stays with rank 0, the 11 where it was.
TEST(Spardl, DoublingTeamsLeaveWhatTheyDropWithTheFirst) {
  const auto outcomes = ExchangeOf({.teams = 4, .doubling = true},
                                   {{7, 5, 0, 0}, {0, 6, 4, 0}, {20, 0, 9, 0}, {0, 0, 9, 0}}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{27, 0, 18, 0}));
  }
  EXPECT_EQ(outcomes[0].returned, (std::vector<float>{-7, 0, 4, 0}));
  EXPECT_EQ(outcomes[1].returned, (std::vector<float>{0, 0, -4, 0}));
  EXPECT_EQ(outcomes[2].returned, (std::vector<float>{-20, 0, -9, 0}));
  EXPECT_EQ(outcomes[3].returned, (std::vector<float>{0, 0, -9, 0}));
}

// --- against the algorithm on dense vectors ---

TEST(Spardl, DoesWhatTheAlgorithmDoesOnDenseVectors) {
  const std::vector<std::pair<std::size_t, std::size_t>> worlds = {
      {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {7, 1},  {8, 1},
      {2, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}, {12, 4}, {14, 2}};
  std::mt19937 random(1);
  for (const auto& [ranks, teams] : worlds) {
    for (const bool lazy : {true, false}) {
      for (const bool doubling : {false, true}) {
        if (doubling && (teams & (teams - 1)) != 0) continue;
        for (const std::size_t kept : {4, 30, 150}) {
          SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(teams) + " teams, k " +
                       std::to_string(kept) + (lazy ? " lazy" : " eager") +
                       (doubling ? " doubling" : ""));
          // Up to a million: no two sums are equal, and none is 0.
          const Vectors vectors = Integers(ranks, 203, 1'000'000, lazy ? 0 : 0.8, random);
          const Form form{teams, lazy, doubling, false};
          const Dense expected = Reference(form, vectors, kept);
          const auto outcomes = ExchangeOf(form, vectors, kept);
          const auto serial = ExchangeOf({teams, lazy, doubling, true}, vectors, kept);
          for (std::size_t rank = 0; rank < ranks; ++rank) {
            ASSERT_EQ(outcomes[rank].applied, expected.applied);
            std::vector<float> left = outcomes[rank].returned;
            for (std::size_t i = 0; lazy && i < left.size(); ++i) left[i] += vectors[rank][i];
            ASSERT_EQ(left, expected.left[rank]) << "rank " << rank;
            ASSERT_EQ(serial[rank].applied, outcomes[rank].applied);
            ASSERT_EQ(serial[rank].returned, outcomes[rank].returned);
          }
        }
      }
    }
  }
}

// --- laws ---

// Applied and remaining values add up to the input, for any values. Messages and bytes equal those
// of the rounds, and ranks agree. h changes between the steps.
TEST(Spardl, LosesNothingInTeamsAndCountsItsMessages) {
  std::mt19937 random(2);
  for (const auto& [ranks, teams] : std::vector<std::pair<std::size_t, std::size_t>>{
           {2, 1}, {3, 1}, {6, 1}, {7, 1}, {8, 1}, {6, 2}, {8, 2}, {8, 4}, {12, 3}, {14, 2}}) {
    for (const Form form : {Form{teams, true, false}, Form{teams, true, true},
                            Form{teams, false, false}, Form{teams, false, true}}) {
      if (form.doubling && (teams & (teams - 1)) != 0) continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(teams) + " teams" +
                   (form.lazy ? " lazy" : " eager") + (form.doubling ? " doubling" : ""));
      const auto collective = form.Make();
      std::vector<Sent> steps;
      for (const double zeros : {0.0, 0.5, 0.98, 0.0, 0.0, 1.0}) {
        steps.push_back(SentOf(form, Integers(ranks, 301, 9, zeros, random), 40));
      }
      steps.push_back(SentOf(form, Integers(ranks, 301, 9, 0, random), 10));  // another density
      const auto outcomes = RunExchanges(*collective, steps, 2);
      const Topology topology{static_cast<int>(ranks), 2};
      for (std::size_t s = 0; s < steps.size(); ++s) {
        std::vector<float> sum(301);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(outcomes[s][rank].applied, outcomes[s][0].applied);
          ASSERT_TRUE(outcomes[s][rank].increasing);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += outcomes[s][rank].returned[i];
          for (const auto& [i, value] : steps[s].by_rank[rank]) sum[i] -= value;
        }
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += outcomes[s][0].applied[i];
        ASSERT_EQ(sum, std::vector<float>(301)) << "step " << s;
        const RoundPlan plan = ExpectCounted(*collective, steps[s], s, outcomes[s], topology);
        for (const Outcome& outcome : outcomes[s]) {
          EXPECT_GE(BytesOf(plan), outcome.traffic.bytes_sent);
        }
        EXPECT_EQ(plan.sums, outcomes[s][0].summed);
      }
    }
  }
}

// Each rank has 5 in every block. Two ranks have more at one place of a block, 9 and 6. A rank that
// cuts a block adds its own 5 to the received ones, so that all four arrive.
TEST(Spardl, AddsToWhatComesByWhatItWouldNotSendItself) {
  Vectors vectors(4, std::vector<float>(16));
  std::vector<float> expected(16);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::size_t block = 0; block < 4; ++block) vectors[rank][4 * block + 1] = 5;
    vectors[rank][4 * rank] = 9;
    vectors[rank][4 * ((rank + 1) % 4)] = 6;
    expected[4 * rank + 1] = 20;
  }
  EXPECT_EQ(ExchangeOf({}, vectors, 4)[0].applied, expected);
}

TEST(Spardl, AnOverflowReachesAllRanks) {
  for (const bool lazy : {true, false}) {
    for (const bool doubling : {true, false}) {
      Vectors vectors(8, std::vector<float>(40));
      for (auto& vector : vectors) std::iota(vector.begin(), vector.end(), 1.0f);
      vectors[1][17] = vectors[5][17] = std::numeric_limits<float>::max();
      for (const std::size_t teams : {1, 2, 4}) {
        for (const Outcome& outcome : ExchangeOf({teams, lazy, doubling, false}, vectors, 8)) {
          EXPECT_EQ(outcome.applied[17], std::numeric_limits<float>::infinity()) << teams;
        }
      }
    }
  }
}

TEST(Spardl, ANaNReachesAllRanks) {
  Vectors vectors(4, std::vector<float>(40, 1.0f));
  vectors[2][3] = std::numeric_limits<float>::quiet_NaN();
  for (const Outcome& outcome : ExchangeOf({.lazy = false}, vectors, 4)) {
    EXPECT_TRUE(std::isnan(outcome.applied[3]));
  }
}

// h starts at k_b / 4 and settles when the teams' lists have k_b = 2000 indices together. For
// independent lists it is a share q of the block with 1 - (1 - q)^4 = 0.1, for equal lists k_b.
TEST(Spardl, IsExpectedWhereItSettles) {
  constexpr std::size_t kElements = 40'000;
  constexpr std::size_t kKept = 4000;
  const Form form{.teams = 4};
  const auto collective = form.Make();
  for (const bool equal : {false, true}) {
    std::mt19937 random(3);
    std::vector<Sent> steps;
    for (int s = 0; s < 60; ++s) {
      Vectors vectors = Integers(8, kElements, 1'000'000, 0, random);
      if (equal) std::fill(vectors.begin(), vectors.end(), vectors[0]);
      steps.push_back(SentOf(form, vectors, kKept));
    }
    const auto outcomes = RunExchanges(*collective, steps);
    const ExchangeSizes expected =
        ExpectedSizes(*collective, {kElements, kKept, 0}, std::vector<std::uint64_t>(8),
                      {.theta = equal ? 1.0 : 0.0}, {8, 1});
    // Words: a block, one list, two lists, the applied sums.
    const std::vector<std::uint64_t>& words = expected.seen.front();
    const double settled = equal ? 2000 : 20'000 * (1 - std::pow(0.9, 0.25));
    EXPECT_NEAR(static_cast<double>(words[1]), settled, 1);
    EXPECT_EQ(words[0], 2000u);
    EXPECT_EQ(words[2], 2 * words[1]);
    EXPECT_NEAR(static_cast<double>(words[3]), 2000, 2);
    EXPECT_EQ(outcomes[0][0].seen[1], 500u);
    double mean = 0;
    for (std::size_t s = 30; s < 60; ++s) mean += static_cast<double>(outcomes[s][0].seen[1]) / 30;
    EXPECT_NEAR(mean, settled, 0.03 * settled);
  }
}

// The eager form cuts unions of selections that have little in common.
TEST(Spardl, ExpectsWhatPayloadsComeTo) {
  std::mt19937 random(4);
  const Form form{.lazy = false};
  const auto collective = form.Make();
  const Sent sent = SentOf(form, Integers(6, 60'000, 1'000'000, 0.99, random), 1200);
  const auto outcomes = RunExchanges(*collective, {sent}).front();
  const Topology topology{6, 1};
  ExchangeSizes expected = RecordedSizes(*collective, sent, 0, outcomes);
  const RoundPlan counted = collective->Rounds(expected, topology);
  collective->Expect({}, topology, expected);
  const RoundPlan planned = collective->Rounds(expected, topology);
  for (std::size_t rank = 0; rank < 6; ++rank) {
    ExpectClose(planned.per_rank[rank].bytes_sent, counted.per_rank[rank].bytes_sent, 0.05);
  }
  ExpectClose(*planned.sums, *counted.sums, 0.05);
}

// --- refusals ---

TEST(Spardl, RefusesTeamsThatDoNotDivide) {
  const CollectiveDescriptor& descriptor = FindCollective("spardl");
  const auto why = [&](const Options& options, int ranks) {
    return descriptor.refuses(ResolveOptions("spardl", descriptor.options, options), {ranks, 1});
  };
  EXPECT_EQ(why({}, 7), "");
  EXPECT_EQ(why({{"teams", std::int64_t{4}}}, 6),
            "takes teams of equal size, and teams = 4 does not divide 6 ranks; expected one of 1, "
            "2, 3, 6");
  const Options doubling = {{"teams", std::int64_t{6}}, {"sag", std::string("recursive-doubling")}};
  EXPECT_EQ(why(doubling, 6), "doubles teams pair by pair, and teams = 6 is no power of two");
  EXPECT_THROW(MakeCollective(descriptor, {{"teams", std::int64_t{0}}}), Error);
  EXPECT_THROW(MakeCollective(descriptor, {{"cut", std::string("never")}}), Error);
  EXPECT_EQ(FailureOf([&] {
              ExchangeOf({.teams = 2}, Vectors(3, std::vector<float>(9)), 3);
            }).substr(0, 40),
            "config: the collective \"spardl\" takes te");
}

TEST(Spardl, RefusesMessagesOfOtherBlocks) {
  const auto failure = [](const SparseVector& foreign, std::size_t bytes) {
    return FailureOf([&] {
      RunRanks(2, 1, kExchangeDeadline, [&](ProgressLoop& loop) {
        const auto collective = Form().Make();
        std::vector<float> accumulated(8, 1.0f);
        std::vector<std::byte> message = PayloadOf(foreign);
        message.resize(std::min(message.size(), bytes));
        std::vector<std::byte> room(64);
        ExchangeBuffers buffers;
        buffers.shape = {8, 4, 0};
        buffers.accumulated = accumulated;
        loop.RunBlocking([&](Communicator& world) -> Task {
          if (world.rank() == 0) {
            co_await collective->Run(world, buffers, 32);
          } else {
            co_await Complete(world.Irecv(0, 32, room), world.Isend(0, 32, message));
          }
        });
      });
    });
  };
  EXPECT_SAYS(failure({{0, 1.0f}, {5, 2.0f}}, 16), "comm: ");
  EXPECT_SAYS(failure({{0, 1.0f}, {1, 2.0f}}, 12), "12 bytes");
}

TEST(Spardl, RefusesAnAccumulatedRangeOfAnotherSize) {
  Sent sent = SentOf({}, Vectors(1, std::vector<float>(9)), 3);
  sent.elements = 10;
  EXPECT_EQ(FailureOf([&] { RunExchanges(*Form().Make(), {sent}); }),
            "internal: spardl: 9 accumulated elements of a range of 10");
}

}  // namespace
}  // namespace sparfuse::testing
