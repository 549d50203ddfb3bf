// Tests the catalog's statements about the workloads, and that their data files exist.
#include "workloads/catalog/catalog.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <variant>

#include "tests/support/errors.hpp"
#include "workloads/optimizer/optimizer.hpp"

namespace sparfuse::workloads {
namespace {

TEST(Catalog, DescribesEachWorkloadOnce) {
  std::set<std::string> names;
  for (const WorkloadDescriptor& workload : Workloads()) {
    EXPECT_TRUE(names.insert(workload.name).second) << workload.name;
    EXPECT_EQ(FindWorkload(workload.name).summary, workload.summary);
    EXPECT_GT(workload.batch_per_worker, 0u);
    EXPECT_NE(workload.data_files.empty(), !workload.synthetic()) << workload.name;
    EXPECT_EQ(workload.higher_is_better, workload.metric != "perplexity");
    const Options defaults = ResolveOptions(workload.name, workload.options, {});
    EXPECT_GT(RecipeFrom(defaults).learning_rate, 0.0);
    EXPECT_FALSE(BoolOption(defaults, "unused_parameter"));
    EXPECT_EQ(IntOption(defaults, "nan_step"), -1);
  }
  EXPECT_TRUE(names.contains("digits-resnet"));
}

TEST(NaturalSparsity, GrowsAlongLogarithmsThroughWhatWasMeasured) {
  const NaturalSparsity natural{.measured = {{1, 0.01}, {4, 0.02}, {16, 0.08}}, .row = 1};
  EXPECT_DOUBLE_EQ(natural.Density(1), 0.01);
  EXPECT_DOUBLE_EQ(natural.Density(4), 0.02);
  EXPECT_NEAR(natural.Density(2), 0.01 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(natural.Density(8), 0.04, 1e-12);
  EXPECT_NEAR(natural.Density(32), 0.16, 1e-12);  // continues the last segment
  EXPECT_DOUBLE_EQ(natural.Density(1e6), 1.0);
}

// Measured densities grow with the number of samples, and are below 5 % at the workload's batch.
TEST(NaturalSparsity, OfWorkloadsIsOfAModelThatHasRows) {
  int natural = 0;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (!workload.natural) continue;
    ++natural;
    const auto& measured = workload.natural->measured;
    ASSERT_GE(measured.size(), 2u) << workload.name;
    for (std::size_t i = 1; i < measured.size(); ++i) {
      EXPECT_GT(measured[i].first, measured[i - 1].first);
      EXPECT_GT(measured[i].second, measured[i - 1].second);
    }
    const double at_batch =
        workload.natural->Density(static_cast<double>(workload.batch_per_worker));
    EXPECT_GT(at_batch, 0);
    EXPECT_LT(at_batch, 0.05) << workload.name;
  }
  EXPECT_GE(natural, 1);
}

// Summaries such as "ViT of three layers" or "a two-layer LSTM".
TEST(Catalog, SummariesCountTheLayersThatAreBuilt) {
  const std::map<std::string, std::int64_t> numbers = {{"two", 2}, {"three", 3}, {"four", 4}};
  int counted = 0;
  for (const WorkloadDescriptor& workload : Workloads()) {
    std::smatch found;
    if (!std::regex_search(workload.summary, found, std::regex("(\\w+)[ -]layers?"))) continue;
    const auto number = numbers.find(found[1]);
    if (number == numbers.end()) continue;
    const std::int64_t layers = std::visit(
        [](const auto& size) -> std::int64_t {
          if constexpr (requires { size.layers; }) return size.layers;
          return 0;
        },
        workload.model);
    EXPECT_EQ(layers, number->second) << workload.name << ": " << workload.summary;
    ++counted;
  }
  EXPECT_GE(counted, 5);
}

TEST(Catalog, NamesAWorkloadWithRealDataWhereThereIsNone) {
  for (const WorkloadDescriptor& workload : Workloads()) {
    EXPECT_EQ(workload.synthetic(), !workload.small.empty()) << workload.name;
    if (workload.synthetic()) {
      EXPECT_FALSE(FindWorkload(workload.small).synthetic()) << workload.name;
    } else {
      EXPECT_GT(workload.target_steps, 0u) << workload.name;
    }
  }
}

TEST(Catalog, NamesTheNearestWorkload) {
  testing::ExpectError(FailureKind::kConfig, {"digits-resent", "\"digits-resnet\""},
                       [&] { FindWorkload("digits-resent"); });
}

TEST(Catalog, TheDataFilesAreThere) {
  for (const WorkloadDescriptor& workload : Workloads()) EXPECT_NO_THROW(CheckData(workload, {}));
  EXPECT_THROW(CheckData(Workloads().front(), "/nonexistent"), Error);
}

}  // namespace
}  // namespace sparfuse::workloads
