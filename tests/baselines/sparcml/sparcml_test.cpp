// Tests both of SparCML's all-reduces by hand on few ranks and against their published costs. Also
// tests sums that change their form, and gathers of blocks of any sizes on any number of ranks.
#include "baselines/sparcml/sparcml.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "baselines/registry.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/exchanges.hpp"

namespace sparfuse::baselines {
namespace {

using testing::Outcome;
using testing::Sent;
using testing::SparseVector;
using Words = std::vector<std::uint64_t>;
using testing::PayloadOf;

constexpr const char* kDoubling = "sparcml-recursive-doubling";
constexpr const char* kSplit = "sparcml-split-allgather";

std::shared_ptr<const Collective> MakeSparcml(const char* name,
                                              const char* dense_switch = "bytes") {
  return MakeCollective(FindCollective(name), {{"dense_switch", std::string(dense_switch)}});
}

std::vector<Outcome> RunOnce(const char* name, const Sent& sent,
                             const char* dense_switch = "bytes") {
  return testing::RunExchanges(*MakeSparcml(name, dense_switch), {sent}).front();
}

Sent Random(std::size_t ranks, std::size_t elements, std::size_t k, std::mt19937& random) {
  return testing::RandomSent(ranks, elements, k, random, [](std::mt19937& of) {
    return static_cast<float>(static_cast<int>(of() % 2001) - 1000) / 7;
  });
}

// --- recursive doubling by hand ---

const std::vector<SparseVector> kFour = {{{0, 1}}, {{1, 2}}, {{0, 3}}, {{3, 4}}};

TEST(RecursiveDoubling, SendsUnionsOfTwiceAsManyRanks) {
  const auto outcomes = RunOnce(kDoubling, {"", 8, 1, kFour});
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{4, 2, 0, 4, 0, 0, 0, 0}));
    EXPECT_FALSE(outcome.dense);
    EXPECT_EQ(outcome.seen, (Words{8, 16, 24}));
    EXPECT_EQ(outcome.traffic, (Traffic{2, 2, 24, 24}));
  }
}

// Of four elements, two with indices take as many bytes as all four without.
TEST(RecursiveDoubling, GoesOnDense) {
  const auto outcomes = RunOnce(kDoubling, {"", 4, 1, kFour});
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{4, 2, 0, 4}));
    EXPECT_TRUE(outcome.dense);
    EXPECT_EQ(outcome.seen, (Words{8, 16, 16}));
  }
  for (const Outcome& outcome : RunOnce(kDoubling, {"", 4, 1, kFour}, "never")) {
    EXPECT_EQ(outcome.applied, outcomes[0].applied);
    EXPECT_FALSE(outcome.dense);
    EXPECT_EQ(outcome.seen, (Words{8, 16, 24}));
  }
}

// Ranks 0 and 1 sum to three of six elements, which is dense; ranks 2 and 3 sum to one element.
TEST(RecursiveDoubling, AddsADenseSumToASparseOne) {
  const auto outcomes =
      RunOnce(kDoubling, {"", 6, 2, {{{0, 1}, {1, 1}}, {{2, 1}}, {{0, 5}}, {{0, 6}}}});
  EXPECT_EQ(outcomes[0].seen, (Words{16, 24, 24}));
  EXPECT_EQ(outcomes[1].seen, (Words{8, 24, 24}));
  EXPECT_EQ(outcomes[2].seen, (Words{8, 8, 24}));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{12, 1, 1, 0, 0, 0}));
  }
}

// Rank 2 of three sends its payload to rank 0 and receives the sum from it.
TEST(RecursiveDoubling, FoldsRanksBeyondAPowerOfTwo) {
  const Sent sent = {"", 9, 1, {{{0, 1}}, {{1, 2}}, {{2, 3}}}};
  const auto outcomes = RunOnce(kDoubling, sent);
  EXPECT_EQ(outcomes[0].seen, (Words{16, 24}));
  EXPECT_EQ(outcomes[1].seen, (Words{8, 24}));
  EXPECT_EQ(outcomes[2].seen, (Words{0, 24}));
  EXPECT_EQ(outcomes[0].traffic, (Traffic{2, 2, 16 + 24, 8 + 8}));
  EXPECT_EQ(outcomes[2].traffic, (Traffic{1, 1, 8, 24}));
  EXPECT_EQ(outcomes[2].applied, (std::vector<float>{1, 2, 3, 0, 0, 0, 0, 0, 0}));
}

// Two nodes of two: in the second round both ranks of a node send to the other node.
TEST(RecursiveDoubling, RoundsByHand) {
  const ExchangeSizes sizes{{100, 1, 0},
                            {80, 80, 80, 80},
                            {{80, 150, 280}, {80, 150, 280}, {80, 160, 280}, {80, 160, 280}}};
  const RoundPlan plan = MakeSparcml(kDoubling)->Rounds(sizes, {4, 2});
  ASSERT_EQ(plan.rounds.size(), 2u);
  EXPECT_EQ(plan.rounds[0].link, LinkClass::kIntraNode);
  EXPECT_EQ(plan.rounds[0].bytes, 80u);
  EXPECT_EQ(plan.rounds[0][Work::kMerge], 20u);
  EXPECT_EQ(plan.rounds[1].link, LinkClass::kInterNode);
  EXPECT_EQ(plan.rounds[1].bytes, 160u);
  EXPECT_EQ(plan.rounds[1].node_bytes, 320u);
  EXPECT_EQ(plan.rounds[1][Work::kMerge], 38u);
  EXPECT_EQ(plan.sums, 35u);
}

// --- split all-gather by hand ---

// The regions of ten elements on four ranks: 2, 2, 2 and the remainder.
const Sent kTen = {"", 10, 2, {{{0, 1}, {9, 2}}, {{0, 3}, {5, 1}}, {{6, 1}, {9, 1}}, {{1, 7}}}};

TEST(SplitAllgather, OwnersAddTheirRegions) {
  const auto outcomes = RunOnce(kSplit, kTen);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{4, 7, 0, 0, 0, 1, 1, 0, 0, 3}));
    EXPECT_TRUE(outcome.dense);  // five of ten
  }
  // Elements sent to other owners, received from other ranks, summed.
  EXPECT_EQ(outcomes[0].seen, (Words{1, 2, 2}));
  EXPECT_EQ(outcomes[1].seen, (Words{2, 0, 0}));
  EXPECT_EQ(outcomes[2].seen, (Words{2, 1, 1}));
  EXPECT_EQ(outcomes[3].seen, (Words{1, 3, 2}));
  // Slices, counts (two rounds, of one and two words), regions. In the second round, rank 3 sends
  // rank 1 its own region and rank 0's, in two pieces.
  EXPECT_EQ(outcomes[0].traffic, (Traffic{3 + 2 + 2, 3 + 2 + 2, 8 + 24 + 24, 16 + 24 + 32}));
  EXPECT_EQ(outcomes[1].traffic, (Traffic{3 + 2 + 2, 3 + 3 + 3, 16 + 24 + 24, 0 + 24 + 32}));
}

TEST(SplitAllgather, GathersSparseWhereToldTo) {
  for (const Outcome& outcome : RunOnce(kSplit, kTen, "never")) {
    EXPECT_EQ(outcome.applied, (std::vector<float>{4, 7, 0, 0, 0, 1, 1, 0, 0, 3}));
    EXPECT_FALSE(outcome.dense);
    EXPECT_EQ(outcome.summed, 5u);
  }
}

// Four of ten elements: dense by the published code, sparse by bytes. Three of ten: sparse by both.
TEST(SplitAllgather, SwitchesAsPublished) {
  Sent sent = {"", 10, 2, {{{0, 1}, {9, 2}}, {{0, 3}, {5, 1}}, {{6, 1}}}};
  EXPECT_FALSE(RunOnce(kSplit, sent)[0].dense);
  EXPECT_TRUE(RunOnce(kSplit, sent, "published")[0].dense);
  sent.by_rank[2] = {{5, 1}};
  EXPECT_FALSE(RunOnce(kSplit, sent, "published")[0].dense);
}

// 1e8 + 1 = 1e8 in floats: any other order would keep the 1.
TEST(SplitAllgather, AddsInRankOrder) {
  const Sent sent = {"", 90, 1, {{{0, 1e8f}}, {{0, 1}}, {{0, -1e8f}}}};
  for (const Outcome& outcome : RunOnce(kSplit, sent)) {
    EXPECT_EQ(outcome.applied[0], 0.0f);
    EXPECT_EQ(outcome.summed, 1u);  // a sum of 0 counts as an element
  }
}

// Six messages to other ranks, 4 / 6 of them to another node.
TEST(SplitAllgather, SplitRoundByHand) {
  const ExchangeSizes sizes{
      {70, 6, 0},
      Words(7, 48),
      {{6, 3, 1}, {5, 9, 2}, {4, 3, 3}, {5, 5, 4}, {5, 5, 5}, {5, 5, 6}, {5, 5, 7}}};
  const RoundPlan plan = MakeSparcml(kSplit)->Rounds(sizes, {7, 3});
  const Round& split = plan.rounds.front();
  EXPECT_EQ(split.messages, 6u);
  EXPECT_EQ(split.bytes, 72u);                      // into rank 1
  EXPECT_EQ(split.node_bytes, 15u * 8u * 4u / 6u);  // out of or into nodes of three
  EXPECT_EQ(split[Work::kMerge], 10u);              // rank 1: 9, and one of its own
  EXPECT_EQ(split[Work::kAdd], 10u);                // a region
  EXPECT_EQ(plan.rounds.size(), 1u + 3u + 3u);
  EXPECT_EQ(plan.sums, 28u);
}

// --- laws ---

TEST(Sparcml, GivesAllRanksEqualBitsWhereOrderMatters) {
  std::mt19937 random(3);
  for (const char* name : {kDoubling, kSplit}) {
    for (const std::size_t ranks : {2, 3, 6, 8, 13}) {
      // Sparse to the end, dense at the end, dense on the way.
      for (const std::size_t k : {20, 100, 300}) {
        const auto outcomes = RunOnce(name, Random(ranks, 1000, k, random));
        for (const Outcome& outcome : outcomes) {
          EXPECT_EQ(std::memcmp(outcome.applied.data(), outcomes[0].applied.data(), 4000), 0)
              << name << " on " << ranks << " ranks, " << k;
        }
      }
    }
  }
}

TEST(Sparcml, ShowsAnOverflowOnAllRanks) {
  const std::vector<SparseVector> by_rank = {{{1, 3e38f}}, {{1, 3e38f}}, {{6, 1}}};
  for (const char* name : {kDoubling, kSplit}) {
    for (const Outcome& outcome : RunOnce(name, {"", 9, 1, by_rank})) {
      EXPECT_TRUE(std::isinf(outcome.applied[1])) << name;
    }
  }
}

// --- the model's expectations ---

double RelativeError(std::uint64_t expected, std::uint64_t recorded) {
  return std::fabs(static_cast<double>(expected) / static_cast<double>(recorded) - 1);
}

// Independent selections: 1,000 of 20,000 elements on eight ranks.
TEST(Sparcml, ExpectsWhatIndependentRanksCameTo) {
  std::mt19937 random(4);
  const Sent sent = Random(8, 20'000, 1000, random);
  for (const char* name : {kDoubling, kSplit}) {
    const auto collective = MakeSparcml(name);
    const auto outcomes = testing::RunExchanges(*collective, {sent}).front();
    const ExchangeSizes recorded = testing::RecordedSizes(*collective, sent, 0, outcomes);
    const ExchangeSizes expected =
        ExpectedSizes(*collective, recorded.shape, recorded.payload_bytes, {}, {8, 1});
    for (std::size_t rank = 0; rank < 8; ++rank) {
      for (std::size_t word = 0; word < expected.seen[rank].size(); ++word) {
        EXPECT_LT(RelativeError(expected.seen[rank][word], recorded.seen[rank][word]), 0.1)
            << name << " rank " << rank << " word " << word;
      }
    }
    const std::uint64_t sums = *collective->Rounds(recorded, {8, 1}).sums;
    EXPECT_LT(RelativeError(*collective->Rounds(expected, {8, 1}).sums, sums), 0.01) << name;
  }
}

// All ranks select the same elements, and their number folds: no sum grows.
TEST(RecursiveDoubling, ExpectsIdenticalSelectionsExactly) {
  std::mt19937 random(5);
  Sent sent = Random(1, 5000, 70, random);
  sent.by_rank.resize(6, sent.by_rank[0]);
  const auto collective = MakeSparcml(kDoubling);
  const auto outcomes = testing::RunExchanges(*collective, {sent}).front();
  const ExchangeSizes recorded = testing::RecordedSizes(*collective, sent, 0, outcomes);
  const ExchangeSizes expected =
      ExpectedSizes(*collective, recorded.shape, recorded.payload_bytes, {.theta = 1}, {6, 1});
  EXPECT_EQ(expected.seen, recorded.seen);
}

// All ranks wait for a region that has more than its share.
TEST(SplitAllgather, ExpectsTheFullestRegion) {
  const auto bytes = [](double skew) {
    return testing::ExpectedRounds(*MakeSparcml(kSplit), {80'000, 800, 0}, {8, 1}, {.skew = skew})
        .rounds.front()
        .bytes;
  };
  EXPECT_EQ(bytes(0), 5600u);  // seven eighths, in and out
  const double fullest = OverlapModel{.skew = 0.5}.LargestRegion(8);
  EXPECT_GT(fullest, 1.5);
  // Whole elements, in and out.
  EXPECT_NEAR(static_cast<double>(bytes(0.5)), fullest * 5600, 16);
}

// --- published bytes ---

double BytesOfAnElement(const char* name, const char* dense_switch, double density, int ranks) {
  constexpr std::size_t kElements = 1'000'000;
  const auto kept = static_cast<std::size_t>(std::lround(density * kElements));
  const auto collective = MakeSparcml(name, dense_switch);
  const RoundPlan plan = testing::ExpectedRounds(*collective, {kElements, kept, 0}, {ranks, 1});
  return static_cast<double>(testing::BytesOf(plan)) / kElements;
}

// A rank's bytes an element of the model, with independent selections. The last number is without
// the switch. With the switch, the last round sends 4 bytes an element instead of 4.556.
TEST(Sparcml, SendsThePublishedBytes) {
  const struct {
    double density;
    int ranks;
    double split, doubling;
    double tolerance;
  } published[] = {{.001, 8, 0.063, 0.056, 0.0005}, {.01, 8, 0.611, 0.554, 0.0005},
                   {.01, 16, 1.19, 1.17, 0.005},    {.05, 8, 2.71, 2.66, 0.005},
                   {.1, 8, 4.20, 5.07, 0.005},      {.1, 16, 4.50, 9.63, 0.005}};
  for (const auto& [density, ranks, split, doubling, tolerance] : published) {
    EXPECT_NEAR(BytesOfAnElement(kSplit, "bytes", density, ranks), split, tolerance) << density;
    EXPECT_NEAR(BytesOfAnElement(kDoubling, "never", density, ranks), doubling, tolerance)
        << density;
    if (ranks * density < 1) {
      EXPECT_NEAR(BytesOfAnElement(kDoubling, "bytes", density, ranks), doubling, tolerance);
    }
  }
  EXPECT_NEAR(BytesOfAnElement(kDoubling, "bytes", .1, 16), 9.63 - 0.556, 0.005);
}

TEST(Sparcml, RefusesAnUnknownSwitch) {
  EXPECT_THROW(MakeSparcml(kDoubling, "published"), Error);
  EXPECT_THROW(MakeSparcml(kSplit, "third"), Error);
}

// A sum together with its memory.
struct Made {
  Made(std::size_t elements, DenseSwitch rule, const SparseVector& of)
      : own(PayloadOf(of)), sum(elements, rule, room) {
    sum.Start(own);
  }
  SparseVector elements() const {
    std::vector<float> dense(1000);
    if (sum.dense()) {
      std::memcpy(dense.data(), sum.message().data(), sum.message().size());
    } else {
      testing::AddTo(dense, sum.message());
    }
    return testing::NonZeros(dense);
  }

  std::vector<std::byte> own;
  Buffer<std::byte> room;
  PartialSum sum;
};

// Of six elements, three with indices take as many bytes as all six without.
TEST(PartialSum, BecomesDenseWhereThatTakesNoMore) {
  Made made(6, DenseSwitch::kBytes, {{1, 1}});
  EXPECT_FALSE(made.sum.dense());
  EXPECT_EQ(made.sum.message().data(), made.own.data());  // no copy is made
  made.sum.Add(PayloadOf({{1, 2}, {4, 5}}));
  EXPECT_FALSE(made.sum.dense());
  EXPECT_EQ(made.elements(), (SparseVector{{1, 3}, {4, 5}}));
  made.sum.Add(PayloadOf({{0, -1}}));
  EXPECT_TRUE(made.sum.dense());
  EXPECT_EQ(made.sum.message().size(), 24u);
  EXPECT_EQ(made.elements(), (SparseVector{{0, -1}, {1, 3}, {4, 5}}));
  made.sum.Add(PayloadOf({{4, 1}}));  // sparse to dense
  const Made other(6, DenseSwitch::kBytes, {{2, 1}, {3, 1}, {4, 1}});
  EXPECT_TRUE(other.sum.dense());
  made.sum.Add(other.sum.message());  // dense to dense
  EXPECT_EQ(made.elements(), (SparseVector{{0, -1}, {1, 3}, {2, 1}, {3, 1}, {4, 7}}));
}

TEST(PartialSum, StaysSparseWhereItMay) {
  Made made(2, DenseSwitch::kNever, {{0, 1}, {1, 1}});
  made.sum.Add(PayloadOf({{0, 1}, {1, 1}}));
  EXPECT_FALSE(made.sum.dense());
  EXPECT_EQ(made.elements(), (SparseVector{{0, 2}, {1, 2}}));
}

// Sums that round, zeros of either sign, and every pair of forms.
TEST(PartialSum, GivesPartnersEqualBits) {
  std::mt19937 random(1);
  for (const std::size_t count : {3, 40, 60}) {
    for (const std::size_t other : {3, 40, 60}) {
      const auto draw = [&](std::size_t size) {
        SparseVector elements;
        while (elements.size() < size) {
          const auto value = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 7;
          elements[static_cast<std::uint32_t>(random() % 100)] = random() % 5 == 0 ? -0.0f : value;
        }
        return elements;
      };
      Made a(100, DenseSwitch::kBytes, draw(count));
      Made b(100, DenseSwitch::kBytes, draw(other));
      const std::vector<std::byte> of_a(a.sum.message().begin(), a.sum.message().end());
      Buffer<float> aligned(b.sum.message().size() / sizeof(float));
      std::memcpy(aligned.data(), b.sum.message().data(), b.sum.message().size());
      b.sum.Add(of_a);
      a.sum.Add(std::as_bytes(aligned.host()));
      ASSERT_EQ(a.sum.dense(), b.sum.dense());
      ASSERT_EQ(a.sum.message().size(), b.sum.message().size());
      EXPECT_EQ(std::memcmp(a.sum.message().data(), b.sum.message().data(), a.sum.message().size()),
                0)
          << count << " and " << other;
    }
  }
}

TEST(PartialSum, RefusesWhatIsNoSum) {
  Made sparse(100, DenseSwitch::kBytes, {{1, 1}});
  EXPECT_THROW(sparse.sum.Add(std::vector<std::byte>(12)), Error);
  Made dense(2, DenseSwitch::kBytes, {{0, 1}, {1, 1}});
  EXPECT_THROW(dense.sum.Add(PayloadOf({{2, 1}, {3, 1}, {4, 1}})), Error);
}

TEST(BlockGather, BringsBlocksWhereTheyBelong) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    std::vector<std::uint64_t> begins = {0};
    std::vector<std::byte> expected;
    for (int rank = 0; rank < ranks; ++rank) {
      expected.resize(expected.size() + static_cast<std::size_t>(rank * 7 % 5),  // some are empty
                      static_cast<std::byte>(rank + 1));
      begins.push_back(expected.size());
    }
    std::vector<Traffic> traffic(static_cast<std::size_t>(ranks));
    testing::RunRanks(ranks, 1, testing::kExchangeDeadline, [&](ProgressLoop& loop) {
      const auto rank = static_cast<std::size_t>(loop.rank());
      std::vector<std::byte> data(expected.size());
      std::fill(data.begin() + static_cast<std::ptrdiff_t>(begins[rank]),
                data.begin() + static_cast<std::ptrdiff_t>(begins[rank + 1]),
                static_cast<std::byte>(rank + 1));
      loop.RunBlocking([&](Communicator& world) -> Task {
        co_await GatherBlocks(world, data, begins, 32);
        traffic[rank] = Total(world.traffic());
      });
      EXPECT_EQ(data, expected) << "rank " << rank;
    });
    RoundPlan plan;
    plan.per_rank.resize(static_cast<std::size_t>(ranks));
    AddGatherRounds(begins, {ranks, 1}, plan);
    EXPECT_EQ(plan.per_rank, traffic);
    EXPECT_EQ(plan.rounds.size(), std::bit_width(static_cast<unsigned>(ranks - 1)));
  }
}

// Rank 1 assumes other block sizes.
TEST(BlockGather, NamesTheRankWhoseBlockHasAnotherSize) {
  const auto gather = [](ProgressLoop& loop) {
    std::vector<std::byte> data(8);
    const std::vector<std::uint64_t> begins = {0, 4, 8};
    loop.RunBlocking([&](Communicator& world) -> Task {
      if (world.rank() == 0) {
        co_await GatherBlocks(world, data, begins, 32);
      } else {
        co_await Complete(world.Irecv(0, 32, std::span(data).first(4)),
                          world.Isend(0, 32, std::span(data).last(3)));
      }
    });
  };
  EXPECT_EQ(testing::ErrorOf([&] { testing::RunRanks(2, 1, testing::kExchangeDeadline, gather); },
                             FailureKind::kComm),
            "all-gather of blocks: 3 bytes from rank 1: expected 4");
}

}  // namespace
}  // namespace sparfuse::baselines
