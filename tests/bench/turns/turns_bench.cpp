// Times selections as training steps call them: six gradients in turn. The state of the step before
// fits the next gradient only as well as in training, and the residual has other elements each
// time. The limits use the same six gradients.
#include "tests/bench/kernel_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  constexpr std::size_t kTurns = 6;
  for (const std::size_t n : Sizes()) {
    if (n == kHuge) continue;  // six of them exceed most machines' memory
    RegisterLimits(n, kTurns);
    for (const std::string sparsifier :
         {"topk", "redsync", "randomk", "mstopk", "block-topk", "gaussiank", "dgc", "sidco"}) {
      for (const double density : Densities(n)) {
        for (const Start start : {Start::kWarm, Start::kFeedback}) {
          Register(sparsifier + At(n, density) + (start == Start::kWarm ? "/warm" : "/feedback"),
                   [=](auto& state) {
                     Select(state, sparsifier, {}, {n, density, "gaussian", start}, {}, kTurns);
                   });
        }
      }
    }
  }
  return Main(argc, argv);
}
