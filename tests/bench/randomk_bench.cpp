// Times random-k beside one read of the tensor, and with feedback beside residual += gradient.
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

void RegisterAll() {
  RegisterLimitsAndTorch();
  RegisterSelections("randomk", "randomk", {}, {Start::kCold, Start::kFeedback});
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
