// Times the threshold sparsifiers on a CUDA card against one read of the tensor, and with feedback
// against residual += gradient. The variants are those of thresholds_bench.cpp.
#include "tests/bench/cards/gpu_bench.hpp"

int main(int argc, char** argv) {
  using namespace sparfuse;
  using namespace sparfuse::bench;
  RegisterGpuLimits();
  const auto add = [](const std::string& label, const std::string& name, const Options& options) {
    RegisterGpuSelections(label, name, options, {Start::kCold, Start::kWarm, Start::kFeedback});
  };
  add("gaussiank", "gaussiank", {});
  add("gaussiank@paper", "gaussiank@paper", {});
  add("redsync", "redsync", {});
  add("sidco/stages:1", "sidco", {{"adaptive", false}});
  add("sidco/stages:3", "sidco", {{"adaptive", false}, {"stages", std::int64_t{3}}});
  add("sidco/fit:gamma", "sidco", {{"adaptive", false}, {"fit", std::string("gamma")}});
  add("sidco@paper", "sidco@paper", {{"adaptive", false}});
  add("mstopk", "mstopk", {});
  add("threshold", "threshold", {{"tau", 2.5}});
  return GpuMain(argc, argv);
}
