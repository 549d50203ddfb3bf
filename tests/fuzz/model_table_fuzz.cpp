// Feeds arbitrary text to the reader of model tables. An accepted table has tensors that can be
// laid out, work, and times for all of them or for none.
#include "harness/catalog/model_table.hpp"
#include "tests/fuzz/fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  workloads::WorkloadDescriptor workload;
  const auto read = [&] { workload = ParseModelTable("folder/fuzz.json", fuzz::Text(data, size)); };
  if (!fuzz::Accepts(read, FailureKind::kConfig, FailureKind::kData)) return 0;
  const workloads::ModelTable& table = *workload.table;
  fuzz::Require(!table.layers.tensors.empty() && table.layers.macs() > 0, "tensors and work");
  for (const workloads::LayerTensor& tensor : table.layers.tensors) {
    fuzz::Require(tensor.numel >= 1 && tensor.numel <= 0xffffffff && tensor.macs >= 0, "a tensor");
  }
  fuzz::Require(workload.units_per_sample >= 1 && workload.batch_per_worker >= 1, "units");
  if (!table.times) return 0;
  const std::size_t timed = table.times->backward_us.size();
  fuzz::Require(timed == 0 || timed == table.layers.tensors.size(), "times of all tensors");
  return 0;
}
