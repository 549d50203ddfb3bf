// Times the threshold sparsifiers against one read of the tensor, and with feedback against
// residual += gradient.
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

struct Variant {
  std::string label;
  std::string sparsifier;
  Options options;
};

// Fixed stages, so that every step of the run does the same work; sidco adapts to three stages on
// Gaussian data and to one on Laplace data.
const std::vector<Variant>& Variants() {
  static const std::vector<Variant> variants = {
      {"gaussiank", "gaussiank", {}},
      {"gaussiank@paper", "gaussiank@paper", {}},
      {"redsync", "redsync", {}},
      {"sidco/stages:1", "sidco", {{"adaptive", false}}},
      {"sidco/stages:3", "sidco", {{"adaptive", false}, {"stages", std::int64_t{3}}}},
      {"sidco/fit:gamma", "sidco", {{"adaptive", false}, {"fit", std::string("gamma")}}},
      {"sidco@paper", "sidco@paper", {{"adaptive", false}}},
      {"mstopk", "mstopk", {}},
      {"threshold", "threshold", {{"tau", 2.5}}}};
  return variants;
}

void RegisterAll() {
  RegisterLimitsAndTorch();
  for (const Variant& variant : Variants()) {
    RegisterSelections(variant.label, variant.sparsifier, variant.options,
                       {Start::kCold, Start::kWarm, Start::kFeedback});
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
