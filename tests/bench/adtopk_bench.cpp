// Times all-dimension top-k against one read of the tensor: rows, and convolution kernels' fibres.
#include "core/sparsify/adtopk/adtopk.hpp"
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

using Shape = std::vector<std::int64_t>;

struct Case {
  std::string name;
  std::string axis;
  Shape shape;
};

// The cost of the fibres if each is selected from separately, by the definition.
void NthElementOfRows(::benchmark::State& state, std::size_t n, std::size_t length,
                      double density) {
  const Floats& x = Data("gaussian", n);
  const auto k = static_cast<std::ptrdiff_t>(KeptCount(length, density));
  std::vector<float> magnitudes(length);
  for (auto _ : state) {
    for (std::size_t row = 0; row < n; row += length) {
      std::transform(x.begin() + static_cast<std::ptrdiff_t>(row),
                     x.begin() + static_cast<std::ptrdiff_t>(row + length), magnitudes.begin(),
                     [](float v) { return std::fabs(v); });
      std::nth_element(magnitudes.begin(), magnitudes.begin() + k - 1, magnitudes.end(),
                       std::greater<>());
      ::benchmark::DoNotOptimize(magnitudes.data());
    }
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * n * sizeof(float)));
}

void RegisterAll() {
  std::vector<Case> cases;
  for (const std::size_t n : Sizes()) {
    for (const std::int64_t length : {512, 5120}) {
      cases.push_back({"rows", "1", {static_cast<std::int64_t>(n) / length, length}});
    }
  }
  cases.push_back({"rows", "1", {2048, 64}});
  cases.push_back({"kernels", "1", {512, 512, 3, 3}});
  cases.push_back({"kernels", "1", {64, 64, 7, 7}});
  if (Sizes().back() > 10'000'000) {
    cases.push_back({"kernels", "1", {5120, 512, 3, 3}});
    cases.push_back({"columns", "0", {5000, 5120}});
  }
  std::map<std::size_t, bool> limits;
  for (const Case& c : cases) {
    const std::size_t n = ElementsOf(c.shape);
    const std::string shape = "/n:" + std::to_string(n) +
                              "/fibre:" + std::to_string(c.axis == "0" ? c.shape[0] : c.shape[1]);
    if (!limits[n]) {
      limits[n] = true;
      Register("limit/sum_abs/n:" + std::to_string(n),
               [n](::benchmark::State& state) { SumAbs(state, n); });
      Register("limit/add/n:" + std::to_string(n),
               [n](::benchmark::State& state) { AddResidual(state, n); });
    }
    for (const double density : Densities(n)) {
      const std::string at = shape + "/density:" + Number(density);
      for (const std::string& data : DataNames(n)) {
        for (const auto& [start, name] :
             {std::pair{Start::kCold, ""}, std::pair{Start::kFeedback, "/feedback"}}) {
          Register("adtopk/" + c.name + at + "/data:" + data + name,
                   [=, start = start](::benchmark::State& state) {
                     Select(state, "adtopk", {{"axis", c.axis}}, n, density, data, start, c.shape);
                   });
        }
      }
      if (c.name != "rows") continue;
      RegisterTorch("/rows" + at, n, static_cast<std::size_t>(c.shape[1]), density);
      Register("nth_element/" + c.name + at + "/data:gaussian", [=](::benchmark::State& state) {
        NthElementOfRows(state, n, static_cast<std::size_t>(c.shape[1]), density);
      });
    }
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
