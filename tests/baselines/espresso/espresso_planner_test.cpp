// Tests what Espresso's planner makes of one option for all tensors.
#include "baselines/espresso/espresso_planner.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/errors.hpp"
#include "tests/support/planning.hpp"

namespace sparfuse::baselines {
namespace {

// Of tensors of 10, 1000 and 1001 elements.
std::vector<int> Paths(const Options& options) {
  GradientLayout layout;
  for (const std::size_t n : {10, 1000, 1001}) {
    layout.Add("tensor", {static_cast<std::int64_t>(n)}, n);
  }
  const Plan plan = sparfuse::testing::PlanOf(
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

// As the published runtime does with its threshold.
TEST(EspressoPlanner, SendsSmallTensorsUncompressed) {
  EXPECT_EQ(Paths({{"option", std::int64_t{9}}, {"compress_from", 1001.0}}),
            (std::vector<int>{kWhole, kWhole, kGatherSelected}));
  EXPECT_EQ(Paths({{"option", std::int64_t{5}}, {"compress_from", 1000.0}}),
            (std::vector<int>{kByServers, kOnProcessor, kOnProcessor}));
  for (const std::int64_t option : {-1, 0, 1, 13, 14}) {
    sparfuse::testing::ExpectIn(
        "compress_from with option = " + std::to_string(option) + ": expected an option that",
        sparfuse::testing::ErrorOf([&] {
          Paths({{"option", option}, {"compress_from", 1000.0}});
        }));
  }
}

}  // namespace
}  // namespace sparfuse::baselines
