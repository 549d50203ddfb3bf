// DGC beside one read of the tensor, and with feedback beside residual += gradient.
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

void RegisterAll() {
  RegisterLimits();
  for (const std::size_t n : Sizes()) {
    for (const double density : {0.001, 0.01, 0.05}) {
      for (const std::string& data : DataNames()) {
        for (const auto& [start, name] :
             {std::pair{Start::kCold, "/cold"}, std::pair{Start::kFeedback, "/feedback"}}) {
          Register(
              "dgc/n:" + std::to_string(n) + "/density:" + Number(density) + "/data:" + data + name,
              [=, start = start](::benchmark::State& state) {
                Select(state, "dgc", {}, n, density, data, start);
              });
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
