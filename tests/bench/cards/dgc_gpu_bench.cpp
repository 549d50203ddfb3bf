// Times DGC on a CUDA card against one read of the tensor and torch.topk.
#include "tests/bench/cards/gpu_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  RegisterTorchOnCard();
  RegisterGpuSelections("dgc", "dgc", {}, {Start::kCold, Start::kWarm, Start::kFeedback});
  return GpuMain(argc, argv);
}
