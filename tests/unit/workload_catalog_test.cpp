#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/error.hpp"
#include "workloads/catalog.hpp"
#include "workloads/optimizer.hpp"

namespace sparfuse {
namespace {

TEST(Catalog, DescribesEachWorkloadOnce) {
  std::set<std::string> names;
  for (const WorkloadDescriptor& workload : Workloads()) {
    EXPECT_TRUE(names.insert(workload.name).second) << workload.name;
    EXPECT_EQ(FindWorkload(workload.name).summary, workload.summary);
    EXPECT_GT(workload.batch_per_worker, 0u);
    EXPECT_FALSE(workload.data_files.empty());
    EXPECT_EQ(workload.higher_is_better, workload.metric == "accuracy");
    const Options defaults = ResolveOptions(workload.name, workload.options, {});
    EXPECT_GT(RecipeFrom(defaults).learning_rate, 0.0);
    EXPECT_FALSE(BoolOption(defaults, "unused_parameter"));
    EXPECT_EQ(IntOption(defaults, "nan_step"), -1);
  }
  EXPECT_EQ(names, (std::set<std::string>{"digits-resnet", "text-gpt", "text-lstm"}));
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
}  // namespace sparfuse
