// Tests which rank the error of a stalled exchange names.
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "core/transport/progress.hpp"
#include "core/transport/threads.hpp"

namespace sparfuse {
namespace {

// Ranks driven by hand: no rank's turn depends on a clock. Rank r waits for waits_for[r].
class Ranks {
 public:
  explicit Ranks(std::vector<int> waits_for) : waits_for_(std::move(waits_for)) {
    for (auto& world : MakeThreadsWorld(static_cast<int>(waits_for_.size()), 1)) {
      ranks_.emplace_back(std::move(world));
    }
  }
  // The finding of `rank` if all ranks but `silent` look at their messages.
  std::string Find(std::size_t rank, std::size_t silent = kNone) {
    const auto pinged = std::chrono::steady_clock::now();
    ranks_[rank].PingAll(waits_for_[rank]);
    for (int round = 0; round < 2; ++round) {  // a ping and its answer
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (r != silent) ranks_[r].Service(waits_for_[r]);
      }
    }
    return ranks_[rank].Describe(waits_for_[rank], pinged);
  }

 private:
  static constexpr std::size_t kNone = 999;
  std::vector<int> waits_for_;
  std::deque<Liveness> ranks_;
};

constexpr int kNothing = Liveness::kNothing;
constexpr int kNative = Liveness::kNativeCollective;

TEST(Liveness, FollowsTheChainOfWaitingRanksToItsEnd) {
  Ranks ranks({3, 0, kNothing, 2});
  for (const std::size_t rank : {0u, 1u, 3u}) {
    EXPECT_EQ(ranks.Find(rank), "rank 2 answers but did not send") << rank;
  }
}

TEST(Liveness, NamesARankThatDoesNotAnswerWhoeverIsWaitedFor) {
  Ranks ranks({3, 0, 1, 2});
  for (const std::size_t rank : {0u, 1u, 3u}) {
    EXPECT_EQ(ranks.Find(rank, 2), "rank 2 does not answer") << rank;
  }
  EXPECT_EQ(ranks.Find(0), "rank 1 answers but did not send");  // all wait: the rank before it
}

TEST(Liveness, NamesWhoTookNoPartInANativeCollective) {
  Ranks some({kNative, kNothing, kNative, kNothing});
  EXPECT_EQ(some.Find(0), "ranks 1, 3 answer but did not take part");
  Ranks all({kNative, kNative});
  EXPECT_EQ(all.Find(0), "all ranks answer and wait for the backend's own collective");
}

}  // namespace
}  // namespace sparfuse
