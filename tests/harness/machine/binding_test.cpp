// Tests how ranks' shares of hosts are written and judged.
#include "harness/machine/binding.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using testing::ExpectIn;

RankBinding Rank(const std::string& host, const std::string& cores,
                 std::optional<int> visible = {}) {
  RankBinding rank;
  rank.host = host;
  rank.cores = cores;
  rank.visible_cards = visible;
  return rank;
}

TEST(Binding, RangesAreWrittenAsTheyAreRead) {
  EXPECT_EQ(WriteRanges({}), "");
  EXPECT_EQ(WriteRanges({4}), "4");
  EXPECT_EQ(WriteRanges({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(ReadRanges("0-2,8,10-11"), (std::vector<int>{0, 1, 2, 8, 10, 11}));
  EXPECT_EQ(ReadRanges(""), std::vector<int>{});
  for (unsigned bits = 0; bits < 256; ++bits) {  // each set of eight cores
    std::vector<int> set;
    for (int core = 0; core < 8; ++core) {
      if ((bits >> core & 1U) != 0) set.push_back(core);
    }
    EXPECT_EQ(ReadRanges(WriteRanges(set)), set);
  }
}

TEST(Binding, ThisProcessMayUseSomeCores) {
  const RankBinding own = BindingOfThisProcess();
  EXPECT_FALSE(ReadRanges(own.cores).empty());
  EXPECT_FALSE(own.host.empty());
}

TEST(Binding, AHostIsOversubscribedWhereItsRanksHaveMoreThreadsThanItHasCores) {
  // Two ranks of two threads fill four cores, whether or not they are bound.
  const std::vector<RankBinding> bound = {Rank("n1", "0-1"), Rank("n1", "2-3"), Rank("n2", "0-3")};
  EXPECT_EQ(WhatIsOversubscribed(bound, 2), "");
  EXPECT_EQ(WhatIsOversubscribed({Rank("n1", "0-3"), Rank("n1", "0-3")}, 2), "");
  EXPECT_EQ(WhatIsOversubscribed(bound, 3), "n1: 2 rank(s) of 3 thread(s) each on 4 core(s)");
  // Both are bound to the same core by mistake.
  EXPECT_EQ(WhatIsOversubscribed({Rank("n1", "0"), Rank("n1", "0")}, 1),
            "n1: 2 rank(s) of 1 thread(s) each on 1 core(s)");
  EXPECT_EQ(WhatIsOversubscribed({Rank("n1", "")}, 1), "");  // unknown
}

TEST(Binding, RanksThatSeeOneCardEachAreHiddenFromOneAnother) {
  ExpectIn("n2: CUDA_VISIBLE_DEVICES names one card for each of 2 ranks",
           WhoIsHidden({Rank("n1", "0", 1), Rank("n2", "0", 1), Rank("n2", "1", 1)}));
  EXPECT_EQ(WhoIsHidden({Rank("n1", "0", 1), Rank("n2", "0", 1)}), "");
  EXPECT_EQ(WhoIsHidden({Rank("n1", "0", 2), Rank("n1", "0", 2)}), "");
  EXPECT_EQ(WhoIsHidden({Rank("n1", "0"), Rank("n1", "0")}), "");
}

TEST(Binding, VisibleCardsAreCounted) {
  setenv("CUDA_VISIBLE_DEVICES", "0,GPU-1f", 1);
  EXPECT_EQ(BindingOfThisProcess().visible_cards, 2);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(BindingOfThisProcess().visible_cards, 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_FALSE(BindingOfThisProcess().visible_cards.has_value());
}

}  // namespace
}  // namespace sparfuse::harness
