// Tests what the catalog says of the workloads, and that their data files are there.
#include "workloads/catalog/catalog.hpp"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <variant>

#include "core/base/error.hpp"
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

// "ViT of three layers", "a two-layer LSTM".
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
  try {
    FindWorkload("digits-resent");
    FAIL() << "an unknown workload was found";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), FailureKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("digits-resent"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("\"digits-resnet\""), std::string::npos);
  }
}

TEST(Catalog, TheDataFilesAreThere) {
  for (const WorkloadDescriptor& workload : Workloads()) EXPECT_NO_THROW(CheckData(workload, {}));
  EXPECT_THROW(CheckData(Workloads().front(), "/nonexistent"), Error);
}

}  // namespace
}  // namespace sparfuse::workloads
