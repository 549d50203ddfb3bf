// Times exact top-k against one read of the tensor and std::nth_element.

#include "tests/bench/kernel_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterLimitsAndTorch();
  RegisterSelections("topk", "topk", {}, {Start::kCold, Start::kWarm, Start::kFeedback});
  ForDensities({}, [](std::size_t n, double density) {
    Register("nth_element" + At(n, density) + "/data:gaussian",
             [=](auto& state) { NthElement(state, n, n, density, "gaussian"); });
  });
  for (const std::size_t n : Sizes()) {
    if (n == kHuge) continue;
    for (const std::string& data : HardDataNames()) {
      const std::string keys = At(n, 0.01) + "/data:" + data;
      Register("topk" + keys + "/cold", [=](auto& state) {
        Select(state, "topk", {}, {n, 0.01, data, Start::kCold});
      });
      Register("nth_element" + keys, [=](auto& state) { NthElement(state, n, n, 0.01, data); });
    }
  }
  return Main(argc, argv);
}
