// Times exact top-k against one read of the tensor and std::nth_element.

#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

void NthElement(::benchmark::State& state, std::size_t n, double density, const std::string& data) {
  const Floats& x = Data(data, n);
  const auto k = static_cast<std::ptrdiff_t>(KeptCount(n, density));
  std::vector<float> magnitudes(n);
  for (auto _ : state) {
    std::transform(x.begin(), x.end(), magnitudes.begin(), [](float v) { return std::fabs(v); });
    std::nth_element(magnitudes.begin(), magnitudes.begin() + k - 1, magnitudes.end(),
                     std::greater<>());
    ::benchmark::DoNotOptimize(magnitudes.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * n * sizeof(float)));
}

void RegisterAll() {
  RegisterLimitsAndTorch();
  RegisterSelections("topk", "topk", {}, {Start::kCold, Start::kWarm, Start::kFeedback});
  for (const std::size_t n : Sizes()) {
    for (const double density : Densities(n)) {
      Register(
          "nth_element/n:" + std::to_string(n) + "/density:" + Number(density) + "/data:gaussian",
          [=](::benchmark::State& state) { NthElement(state, n, density, "gaussian"); });
    }
    if (n == kHuge) continue;
    for (const std::string& data : HardDataNames()) {
      const std::string keys = "/n:" + std::to_string(n) + "/density:0.01/data:" + data;
      Register("topk" + keys + "/cold", [=](::benchmark::State& state) {
        Select(state, "topk", {}, n, 0.01, data, Start::kCold);
      });
      Register("nth_element" + keys,
               [=](::benchmark::State& state) { NthElement(state, n, 0.01, data); });
    }
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
