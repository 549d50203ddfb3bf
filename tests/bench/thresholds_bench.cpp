// Times the threshold sparsifiers against one read of the tensor, and with feedback against
// residual += gradient.
#include "tests/bench/kernel_bench.hpp"
#include "tests/bench/threshold_variants.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse::bench;
  RegisterLimitsAndTorch();
  for (const auto& [label, sparsifier, options] : ThresholdVariants()) {
    RegisterSelections(label, sparsifier, options, {Start::kCold, Start::kWarm, Start::kFeedback});
  }
  return Main(argc, argv);
}
