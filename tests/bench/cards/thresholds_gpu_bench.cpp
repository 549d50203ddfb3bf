// Times the threshold sparsifiers on a CUDA card against one read of the tensor, and with feedback
// against residual += gradient.
#include "tests/bench/cards/gpu_bench.hpp"
#include "tests/bench/threshold_variants.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  for (const auto& [label, sparsifier, options] : ThresholdVariants()) {
    RegisterGpuSelections(label, sparsifier, options,
                          {Start::kCold, Start::kWarm, Start::kFeedback});
  }
  return GpuMain(argc, argv);
}
