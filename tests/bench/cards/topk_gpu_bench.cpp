// Times exact top-k on a CUDA card against one read of the tensor, torch.topk and CUB's selections.
#include "tests/bench/cards/gpu_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  RegisterTorchOnCard();
  RegisterCubOnCard();
  RegisterGpuSelections("topk", "topk", {}, {Start::kCold, Start::kWarm, Start::kFeedback});
  return GpuMain(argc, argv);
}
