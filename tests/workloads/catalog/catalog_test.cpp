#include "workloads/catalog/catalog.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

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
