// Times all-dimension top-k against one read of the tensor: rows, and convolution kernels' fibres.
// std::nth_element of rows is the cost of fibres that are selected from separately, by definition.
#include <set>

#include "tests/bench/fibre_cases.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  std::vector<FibreCase> cases;
  AddRows(Sizes(), cases);
  cases.push_back({"rows", "1", {2048, 64}});
  cases.push_back({"kernels", "1", {512, 512, 3, 3}});
  cases.push_back({"kernels", "1", {64, 64, 7, 7}});
  if (Sizes().back() > 10'000'000) {
    cases.push_back({"kernels", "1", {5120, 512, 3, 3}});
    cases.push_back({"columns", "0", {5000, 5120}});
  }
  std::set<std::size_t> limits;
  for (const FibreCase& c : cases) {
    const std::size_t n = c.n();
    if (limits.insert(n).second) RegisterLimits(n);
    for (const double density : Densities(n)) {
      ForFibreSelections(c, density, [&](const std::string& name, const SelectionCase& of) {
        Register(name, [=](auto& state) {
          Select(state, "adtopk", {{"axis", c.axis}}, of, c.shape);
        });
      });
      if (c.name != "rows") continue;
      const std::string rows = "/rows" + c.Keys() + "/density:" + Number(density);
      const auto length = static_cast<std::size_t>(c.shape[1]);
      RegisterTorch(rows, n, length, density);
      Register("nth_element" + rows + "/data:gaussian",
               [=](auto& state) { NthElement(state, n, length, density, "gaussian"); });
    }
  }
  return Main(argc, argv);
}
