// Tests random-k: the data do not change the draws, and every element and set is equally likely.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/errors.hpp"
#include "tests/support/sparsifier_oracle.hpp"

namespace sparfuse::testing {
namespace {

std::vector<std::uint32_t> Indices(std::uint64_t seed, std::uint32_t id, std::uint64_t step,
                                   std::size_t n, double density, std::uint32_t data_seed = 1) {
  Selection selection(MakeSparsifier("randomk", {}, seed), n, density, 1, false);
  return selection.Run(MakeData("gaussian", n, data_seed), step, id).indices;
}

TEST(RandomK, DrawsTheSameIndicesWhateverTheData) {
  EXPECT_EQ(Indices(1, 2, 3, 10'000, 0.05, 1), Indices(1, 2, 3, 10'000, 0.05, 99));
}

TEST(RandomK, SeedTensorAndStepEachChangeTheDraw) {
  const auto base = Indices(1, 2, 3, 10'000, 0.05);
  EXPECT_NE(base, Indices(4, 2, 3, 10'000, 0.05));
  EXPECT_NE(base, Indices(1, 4, 3, 10'000, 0.05));
  EXPECT_NE(base, Indices(1, 2, 4, 10'000, 0.05));
  // No key's stream is a shift of another's; the reference's "name plus step" collides this way.
  EXPECT_NE(Indices(1, 3, 2, 10'000, 0.05), Indices(1, 2, 3, 10'000, 0.05));
}

// Every element is equally likely: over many steps, the number of times that an element is sent is
// binomial. 4,000 draws of 200 elements; 6 standard deviations have a chance of 1 in 10^9 each.
void ExpectUniform(double density) {
  constexpr std::size_t kN = 200;
  constexpr int kDraws = 4000;
  Selection selection(MakeSparsifier("randomk", {}, 5), kN, density, 1, false);
  const auto gradient = MakeData("gaussian", kN, 1);
  std::vector<int> sent(kN, 0);
  std::vector<int> sent_with_first(kN, 0);
  for (int step = 0; step < kDraws; ++step) {
    const auto indices = selection.Run(gradient, static_cast<std::uint64_t>(step)).indices;
    ASSERT_EQ(indices.size(), KeptCount(kN, density));
    for (const std::uint32_t i : indices) ++sent[i];
    if (indices.front() != 0) continue;
    for (const std::uint32_t i : indices) ++sent_with_first[i];
  }
  const double p = static_cast<double>(KeptCount(kN, density)) / kN;
  const double sigma = std::sqrt(kDraws * p * (1 - p));
  for (std::size_t i = 0; i < kN; ++i) EXPECT_NEAR(sent[i], kDraws * p, 6 * sigma) << i;
  // Pairs: if element 0 is sent, each other element is sent with probability (k - 1) / (n - 1).
  const double pair = (p * kN - 1) / (kN - 1);
  const double pair_sigma = std::sqrt(sent[0] * pair * (1 - pair));
  for (std::size_t i = 1; i < kN; ++i) {
    EXPECT_NEAR(sent_with_first[i], sent[0] * pair, 6 * pair_sigma) << i;
  }
}

TEST(RandomK, EveryElementIsEquallyLikely) { ExpectUniform(0.1); }
TEST(RandomK, EveryElementIsEquallyLikelyWhereMostAreSent) { ExpectUniform(0.8); }

TEST(RandomK, LooksForWhatIsNotFiniteInWhatItSends) {
  for (const bool unsent : {false, true}) {
    Options options;
    if (unsent) options["check_unsent"] = true;
    const auto sparsifier = MakeSparsifier("randomk", options, 1);
    Selection plain(*sparsifier, 10'000, 0.01, 1, false);
    auto gradient = MakeData("gaussian", 10'000, 1);
    const auto indices = plain.Run(gradient, 3).indices;
    gradient[indices[50] + 1] = kNan;  // not sent with this seed
    ASSERT_NE(indices[51], indices[50] + 1);
    if (unsent) {
      ExpectError(FailureKind::kNumeric, {"step 3"}, [&] { plain.Run(gradient, 3); });
    } else {
      EXPECT_EQ(plain.Run(gradient, 3).indices, indices);
    }
    Selection feedback(*sparsifier, 10'000, 0.01, 1, true);
    ExpectError(FailureKind::kNumeric, {"step 3"}, [&] { feedback.Run(gradient, 3); });
    gradient[indices[50]] = kInfinity;
    ExpectError(FailureKind::kNumeric, {"step 3", std::to_string(indices[50])},
                [&] { plain.Run(gradient, 3); });
  }
}

TEST(RandomK, SmallTensorsMeetAllTheirSets) {
  std::set<std::vector<std::uint32_t>> seen;
  for (std::uint64_t step = 0; step < 300; ++step) seen.insert(Indices(1, 2, step, 5, 0.4));
  EXPECT_EQ(seen.size(), 10u);  // 5 choose 2
}

// Results are keyed by the stream: a change of the stream must raise the revision.
TEST(RandomK, TheStreamOfRevision1) {
  ASSERT_EQ(FindSparsifier("randomk").revision, 1);
  EXPECT_EQ(Indices(1, 2, 3, 1000, 0.005), (std::vector<std::uint32_t>{130, 275, 437, 921, 954}));
}

}  // namespace
}  // namespace sparfuse::testing
