// Tests that recorded workloads sleep for the times of the committed profile.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/tree/source_directory.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/models/layers.hpp"
#include "workloads/recorded/recorded_workload.hpp"

namespace sparfuse::workloads {
namespace {

TEST(RecordedTimes, AreThoseOfTheCommittedProfile) {
  std::ifstream file(testing::SourceDirectory() / "results/profiles/epyc-2core.json");
  const auto outcomes = nlohmann::json::parse(file);
  const RecordedTimes& times = TimesOf(FindWorkload("recorded-resnet").model);
  int compared = 0;
  for (const auto& outcome : outcomes) {
    const auto& config = outcome.at("config");
    if (config.at("workload") != "digits-resnet" || config.at("workers") != 1) continue;
    ++compared;
    EXPECT_EQ(config.at("batch_per_worker"), times.batch);
    const auto& backward = outcome.at("profile").at("backward");
    constexpr double kRounded = 0.00501;  // microseconds
    EXPECT_NEAR(times.forward_us, 1e6 * backward.at("forward_seconds").get<double>(), kRounded);
    EXPECT_NEAR(times.tail_us, 1e6 * backward.at("tail_seconds").get<double>(), kRounded);
    const auto& tensors = backward.at("tensors");
    const LayerTable& layers = LayersOf("digits-resnet");
    ASSERT_EQ(tensors.size(), times.backward_us.size());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      EXPECT_EQ(tensors[t].at("name"), layers.tensors[t].name);
      EXPECT_NEAR(times.backward_us[t], 1e6 * tensors[t].at("seconds").get<double>(), kRounded);
    }
  }
  EXPECT_EQ(compared, 1);
}

}  // namespace
}  // namespace sparfuse::workloads
