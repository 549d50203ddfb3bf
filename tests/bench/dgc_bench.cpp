// Times DGC against one read of the tensor, and with feedback against residual += gradient.
#include "tests/bench/kernel_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterLimitsAndTorch();
  RegisterSelections("dgc", "dgc", {}, {Start::kCold, Start::kWarm, Start::kFeedback});
  return Main(argc, argv);
}
