// Times all-dimension top-k on a CUDA card against one read of the tensor: rows, the fibres of
// convolution kernels, and columns.
#include "tests/bench/cards/gpu_bench.hpp"
#include "tests/bench/fibre_cases.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  std::vector<FibreCase> cases = {
      {"rows", "1", {400'000, 64}},       {"rows", "1", {33'333, 768}},
      {"rows", "1", {800, 32'000}},       {"kernels", "1", {5120, 512, 3, 3}},
      {"kernels", "1", {8000, 64, 7, 7}}, {"columns", "0", {768, 33'280}},
      {"columns", "0", {5000, 5120}}};
  AddRows(GpuSizes(), cases);
  for (const FibreCase& c : cases) {
    for (const double density : GpuDensities(c.n())) {
      ForFibreSelections(c, density, [&](const std::string& name, const SelectionCase& of) {
        RegisterOnCard(name, [=](auto& state) {
          SelectOnCard(state, "adtopk", {{"axis", c.axis}}, of, c.shape);
        });
      });
    }
  }
  return GpuMain(argc, argv);
}
