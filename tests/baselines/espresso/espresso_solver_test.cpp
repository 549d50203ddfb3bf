// Tests Espresso's planner against its published form: the plan of VGG16's published times, the
// number of tensors with each option in other models, and plans with one option for all tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "baselines/espresso/espresso_planner.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"
#include "tests/support/timed_tensors.hpp"

namespace sparfuse::baselines {
namespace {

// The options of VGG16's tensors in ready order, with the times of Espresso's profile.
std::vector<int> Vgg16Options(const EspressoSetting& setting) {
  return EspressoOptions(testing::MeasuredVgg16().view(), setting);
}

constexpr EspressoSetting kPublished{.nodes = 4,
                                     .gpus_per_node = 8,
                                     .compressor = EspressoCompressor::kRandomK,
                                     .density = 0.01,
                                     .cpu = true,
                                     .two_level = true};

TEST(EspressoSolver, MakesThePublishedPlanWithItsDefect) {
  EspressoSetting setting = kPublished;
  setting.mod1000 = true;
  EXPECT_EQ(Vgg16Options(setting),
            (std::vector<int>{0, 5, 0, 9, 0, 9, 0, 5, 0, 5, 0, 5, 0, 4, 0, 4,
                              0, 4, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0}));
}

// Seven plans end at 85,622.8 us: the expected one is tried first.
TEST(EspressoSolver, MakesThePublishedPlanOfRealGaps) {
  EXPECT_EQ(Vgg16Options(kPublished),
            (std::vector<int>{0, 4, 0, 5, 0, 9, 0, 1, 0, 1, 0, 1, 0, 5, 0, 4,
                              0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(EspressoSolver, WithoutProcessorsAndLevelsThereAreFewerOptions) {
  EspressoSetting setting = kPublished;
  setting.cpu = setting.two_level = false;
  for (const int option : Vgg16Options(setting)) {
    EXPECT_TRUE(option == kWhole || option == kHalves || option == kGatherBetween) << option;
  }
  // With more than three nodes, large gradients of signs are scattered first.
  setting.compressor = EspressoCompressor::kEfSignSgd;
  EXPECT_EQ(Vgg16Options(setting)[5], kAllToAllBetween);
  setting.nodes = 3;
  EXPECT_EQ(Vgg16Options(setting)[5], kGatherBetween);
  setting.two_level = true;
  EXPECT_EQ(Vgg16Options(setting)[5], kRootEncoded);
}

// The number of tensors with each option, for gradients that are `gap_us` apart.
std::map<int, int> HistogramOf(const std::vector<std::size_t>& elements, double gap_us,
                               EspressoCompressor compressor, bool two_level) {
  EspressoSetting setting = kPublished;
  setting.compressor = compressor;
  setting.two_level = two_level;
  setting.mod1000 = true;
  std::map<int, int> count;
  const std::vector<double> seconds(elements.size(), gap_us * 1e-6);
  for (const int option : EspressoOptions({elements, seconds}, setting)) ++count[option];
  return count;
}

void Append(std::vector<std::size_t>& elements, std::initializer_list<std::size_t> more) {
  elements.insert(elements.end(), more);
}

// Published counts of options, for models whose sizes follow from their definition. Only the sum of
// their gaps is known: even gaps stand in, and others with the same sum give the same counts.
TEST(EspressoSolver, SendsAsManyTensorsInEachWayAsPublishedGpt2) {
  std::vector<std::size_t> elements{768, 768};
  for (int block = 0; block < 12; ++block) {
    Append(elements, {768, 2359296, 3072, 2359296, 768, 768, 768, 589824, 2304, 1769472, 768, 768});
  }
  Append(elements, {786432, 38597376});
  ASSERT_EQ(elements.size(), 148u);
  EXPECT_EQ(HistogramOf(elements, 38329.0 / 147, EspressoCompressor::kEfSignSgd, false),
            (std::map<int, int>{{0, 98}, {1, 13}, {3, 1}, {4, 11}, {5, 25}}));
}

TEST(EspressoSolver, SendsAsManyTensorsInEachWayAsPublishedBertBase) {
  std::vector<std::size_t> elements{2, 1536};
  for (int block = 0; block < 12; ++block) {
    Append(elements, {768, 768, 768, 2359296, 3072, 2359296, 768, 768, 768, 589824, 768, 589824,
                      768, 589824, 768, 589824});
  }
  Append(elements, {768, 768, 1536, 393216, 23445504});
  ASSERT_EQ(elements.size(), 199u);
  const auto options = [&] {
    return HistogramOf(elements, 66335.0 / 198, EspressoCompressor::kRandomK, false);
  };
  EXPECT_EQ(options(), (std::map<int, int>{{0, 125}, {1, 49}, {4, 1}, {5, 24}}));
  // With the pooler, which the profile does not contain.
  elements.insert(elements.begin() + 2, {768, 589824});
  EXPECT_EQ(options(), (std::map<int, int>{{0, 126}, {1, 50}, {4, 1}, {5, 24}}));
}

TEST(EspressoSolver, SendsAsManyTensorsInEachWayAsPublishedLstm) {
  const std::vector<std::size_t> elements{33278, 6000, 6000,    9000000, 9000000,
                                          6000,  6000, 9000000, 9000000, 49917000};
  EXPECT_EQ(HistogramOf(elements, 500, EspressoCompressor::kEfSignSgd, true),
            (std::map<int, int>{{0, 5}, {5, 1}, {6, 4}}));
}

// The options of tensors that are all ready at once.
std::vector<int> OptionsAtOnce(const std::vector<std::size_t>& elements,
                               const EspressoSetting& setting) {
  return EspressoOptions({elements, std::vector<double>(elements.size())}, setting);
}

TEST(EspressoSolver, NvlinkCompressesSmallerTensors) {
  EspressoSetting setting = kPublished;
  setting.cpu = false;
  constexpr std::size_t k1 = 1;
  EXPECT_EQ(
      OptionsAtOnce({k1 << 17, (k1 << 17) + 1, k1 << 20, (k1 << 20) + 1, k1 << 23, (k1 << 23) + 1},
                    setting),
      (std::vector<int>{kWhole, kHalves, kHalves, kGatherBetween, kGatherBetween,
                        kGatherSelected}));
  setting.nvlink = true;
  EXPECT_EQ(
      OptionsAtOnce({k1 << 17, (k1 << 17) + 1, k1 << 19, (k1 << 19) + 1, k1 << 22, (k1 << 22) + 1},
                    setting),
      (std::vector<int>{kWhole, kHalves, kHalves, kGatherBetween, kGatherBetween,
                        kGatherSelected}));
}

TEST(EspressoSolver, GathersFromAllWhatIsTinyCompressed) {
  EspressoSetting setting = kPublished;
  setting.density = 0.0025;
  EXPECT_EQ(Vgg16Options(setting)[5], kGatherSelected);
  setting.density = 0.0024;
  EXPECT_EQ(Vgg16Options(setting)[5], kGatherAll);
}

TEST(EspressoSolver, ProcessorsTakeTensorsBelow32Mi) {
  constexpr std::size_t kLimit = std::size_t{1} << 25;
  EspressoSetting setting = kPublished;
  setting.two_level = false;
  EXPECT_EQ(OptionsAtOnce({kLimit - 1, kLimit - 1, kLimit - 1}, setting),
            (std::vector<int>{kOnProcessor, kGatherBetween, kGatherBetween}));
  EXPECT_EQ(OptionsAtOnce({kLimit, kLimit, kLimit}, setting),
            (std::vector<int>{kGatherBetween, kGatherBetween, kGatherBetween}));
}

// Between two nodes, encoding one bit costs more than it saves.
TEST(EspressoSolver, CompressorsHaveTheirOwnTimes) {
  EspressoSetting setting = kPublished;
  setting.nodes = 2;
  setting.nvlink = true;
  setting.cpu = false;
  const auto with = [&](EspressoCompressor compressor) {
    setting.compressor = compressor;
    return OptionsAtOnce({(std::size_t{1} << 19) + 1}, setting)[0];
  };
  EXPECT_EQ(with(EspressoCompressor::kRandomK), kGatherBetween);
  EXPECT_EQ(with(EspressoCompressor::kDgc), kGatherBetween);
  EXPECT_EQ(with(EspressoCompressor::kEfSignSgd), kGatherBetween);
  EXPECT_EQ(with(EspressoCompressor::kOneBit), kHalves);
}

TEST(EspressoSolver, OneTensorThatIsSmallIsSentWhole) {
  const std::vector<std::size_t> elements{1000};
  const std::vector<double> seconds{0.1};
  EXPECT_EQ(EspressoOptions({elements, seconds}, kPublished), std::vector<int>{kWhole});
}

// 2^250 combinations: one size after another is tried.
TEST(EspressoSolver, ManySizesEndSoon) {
  std::vector<std::size_t> elements;
  const std::vector<double> seconds(250, 1e-4);
  for (std::size_t i = 0; i < seconds.size(); ++i) elements.push_back((2u << 20) + i);
  const auto plan = EspressoOptions({elements, seconds}, kPublished);
  EXPECT_GT(std::ranges::count(plan, kOnProcessor), 0);
}

TEST(EspressoSolver, SettingsOutOfRangeAreRefused) {
  EspressoSetting setting = kPublished;
  setting.density = 0;
  testing::ExpectIn("density = 0.000000: expected a number in (0, 1]",
                    testing::ErrorOf([&] { Vgg16Options(setting); }));
}

// The options of tensors of 10, 1000 and 1001 elements.
std::vector<int> Paths(const Options& options) {
  const GradientLayout layout = testing::LayoutOf({10, 1000, 1001});
  const Plan plan = testing::PlanOf(
      "espresso",
      {.layout = layout, .topology = {4, 2}, .density = 0.1, .sparsified = Sparsified::kBehind},
      options);
  std::vector<int> paths;
  for (const Unit& unit : plan.units) {
    EXPECT_EQ(unit.sparsified == Sparsified::kBehind, EspressoCompresses(unit.path));
    paths.push_back(unit.path);
  }
  return paths;
}

TEST(EspressoPlanner, GivesAllTensorsOneOption) {
  for (int option = 0; option < kEspressoOptions; ++option) {
    EXPECT_EQ(Paths({{"option", std::int64_t{option}}}), std::vector<int>(3, option));
  }
}

// The published runtime does this with its threshold.
TEST(EspressoPlanner, SendsSmallTensorsUncompressed) {
  EXPECT_EQ(Paths({{"option", std::int64_t{9}}, {"compress_from", 1001.0}}),
            (std::vector<int>{kWhole, kWhole, kGatherSelected}));
  EXPECT_EQ(Paths({{"option", std::int64_t{5}}, {"compress_from", 1000.0}}),
            (std::vector<int>{kByServers, kOnProcessor, kOnProcessor}));
  for (const std::int64_t option : {-1, 0, 1, 13, 14}) {
    testing::ExpectIn(
        "compress_from with option = " + std::to_string(option) + ": expected an option that",
        testing::ErrorOf([&] {
          Paths({{"option", option}, {"compress_from", 1000.0}});
        }));
  }
}

}  // namespace
}  // namespace sparfuse::baselines
