// Tests one step of each model at paper size, and the order of its gradients against its layer
// table. Takes some eight minutes on two cores, and 16 GB of memory for the largest model.
#include "tests/support/model_step.hpp"
#include "tests/support/workload_state.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::workloads {
namespace {

class PaperModel : public ::testing::TestWithParam<std::string> {};

TEST_P(PaperModel, StepsAsItsTableSays) {
  const WorkloadDescriptor& descriptor = FindWorkload(GetParam());
  // A norm over a batch needs more than one image.
  const bool normalises_batches = descriptor.family() == "resnet" || descriptor.family() == "vgg";
  testing::ExpectAStepAsTheTableSays(GetParam(), normalises_batches ? 2 : 1, 2);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (workload.synthetic() && !workload.sleeps) names.push_back(workload.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Workloads, PaperModel, ::testing::ValuesIn(Names()), testing::TestName);

}  // namespace
}  // namespace sparfuse::workloads
