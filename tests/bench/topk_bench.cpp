// Times exact top-k beside one read of the tensor and std::nth_element.

#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

void NthElement(::benchmark::State& state, std::size_t n, double density) {
  const Floats& x = Data("gaussian", n);
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
          [=](::benchmark::State& state) { NthElement(state, n, density); });
    }
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
