// Times random-k on a CUDA card against one read of the tensor.
#include "tests/bench/cards/gpu_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  RegisterGpuSelections("randomk", "randomk", {}, {Start::kCold, Start::kFeedback});
  return GpuMain(argc, argv);
}
