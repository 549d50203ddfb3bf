// Times selections as training steps call them: six gradients in turn. The state of the step before
// fits the next gradient only as well as in training, and the residual has other elements each
// time. The limits use the same six gradients.
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

constexpr std::size_t kTurns = 6;

void RegisterAll() {
  for (const std::size_t n : Sizes()) {
    if (n == kHuge) continue;  // six of them exceed most machines' memory
    RegisterLimits(n, kTurns);
    for (const char* sparsifier :
         {"topk", "redsync", "randomk", "mstopk", "block-topk", "gaussiank", "dgc", "sidco"}) {
      for (const double density : Densities(n)) {
        for (const Start start : {Start::kWarm, Start::kFeedback}) {
          Register(std::string(sparsifier) + "/n:" + std::to_string(n) + "/density:" +
                       Number(density) + (start == Start::kWarm ? "/warm" : "/feedback"),
                   [=](::benchmark::State& state) {
                     Select(state, sparsifier, {}, n, density, "gaussian", start, {}, kTurns);
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
