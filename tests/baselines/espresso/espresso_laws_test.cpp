// Tests the laws of Espresso's options, each live and modelled, on nodes of one and of several
// ranks.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/baselines/espresso/espresso_runs.hpp"
#include "tests/support/sanitizers.hpp"

namespace sparfuse::baselines {
namespace {

class EspressoOption : public ::testing::TestWithParam<std::tuple<int, Topology>> {
 protected:
  Setting Which() const {
    return {.option = std::get<0>(GetParam()), .topology = std::get<1>(GetParam())};
  }
};

TEST_P(EspressoOption, LosesNothingAndLeavesReplicasEqual) { ExpectSound(Trained(Which())); }

TEST_P(EspressoOption, WithAllElementsIsTheDenseSum) {
  Setting setting = Which();
  setting.density = 1;
  const auto results = Trained(setting);
  Setting dense = setting;
  dense.option = kWhole;
  const auto expected = Trained(dense);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].averaged, expected[rank].averaged);
  }
}

TEST_P(EspressoOption, IsModelledWithTheBytesThatAreCounted) {
  ExpectModelled(Which(), Trained(Which()));
}

TEST_P(EspressoOption, RanksThatFollowDoAsWhenTheyAreSimulated) {
  for (const double spread : {0.0, 0.3}) {
    const ModelStep all = Modelled(Which(), spread, Which().topology.ranks);
    const ModelStep some = Modelled(Which(), spread, 1);
    for (std::size_t rank = 0; rank < all.records.size(); ++rank) {
      EXPECT_EQ(some.records[rank], all.records[rank]) << rank << ", " << spread;
    }
  }
}

// Selections exceed the room that the plan's density makes: the first steps of a warm-up keep more
// elements, and every row of a matrix sends at least one.
TEST_P(EspressoOption, HasRoomForWhatIsSelected) {
  Setting setting = Which();
  setting.density = 0.001;
  setting.begins_with = 500;
  ExpectSound(Trained(setting));
  setting.begins_with = 1;
  setting.sparsifier = "adtopk";
  ExpectSound(Trained(setting));
}

// Called by googletest.
std::string NameOf(const ::testing::TestParamInfo<std::tuple<int, Topology>>& info) {
  const Topology& where = std::get<1>(info.param);
  return std::to_string(std::get<0>(info.param)) + "_on_" + std::to_string(where.ranks) + "_" +
         std::to_string(where.ranks_per_node) + "_a_node";
}

const std::vector<Topology> kTopologies =
    testing::kSanitized ? std::vector<Topology>{{3, 1}, {4, 2}}
                        : std::vector<Topology>{{1, 1}, {3, 1}, {2, 2}, {4, 2}, {6, 2}, {8, 4}};

INSTANTIATE_TEST_SUITE_P(All, EspressoOption,
                         ::testing::Combine(::testing::Range(0, kEspressoOptions),
                                            ::testing::ValuesIn(kTopologies)),
                         NameOf);

class EspressoOnADevice : public ::testing::TestWithParam<int> {};

TEST_P(EspressoOnADevice, DoesWhatItDoesOnTheHost) {
  Setting setting{.option = GetParam(), .topology = {4, 2}};
  const auto expected = Trained(setting);
  setting.device = testing::kEmulated;
  const auto results = Trained(setting);
  ExpectSound(results);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].averaged, expected[rank].averaged);
    EXPECT_EQ(results[rank].residual, expected[rank].residual);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EspressoOnADevice,
                         ::testing::Range(0, kEspressoOptions, testing::kSanitized ? 4 : 1));

}  // namespace
}  // namespace sparfuse::baselines
