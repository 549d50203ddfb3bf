// The threshold sparsifiers beside one read of the tensor, and with feedback beside
// residual += gradient.
#include "tests/bench/kernel_bench.hpp"

namespace sparfuse::bench {
namespace {

struct Variant {
  std::string label;
  std::string sparsifier;
  Options options;
};

// Stages fixed, so that every step of the run is the same work; sidco adapts to three on Gaussian
// data and to one on Laplace data.
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
  RegisterLimits();
  for (const std::size_t n : Sizes()) {
    for (const double density : {0.001, 0.01, 0.05}) {
      for (const std::string& data : DataNames()) {
        for (const Variant& variant : Variants()) {
          for (const auto& [start, name] :
               {std::pair{Start::kCold, "/cold"}, std::pair{Start::kWarm, "/warm"},
                std::pair{Start::kFeedback, "/feedback"}}) {
            Register(variant.label + "/n:" + std::to_string(n) + "/density:" + Number(density) +
                         "/data:" + data + name,
                     [=, start = start](::benchmark::State& state) {
                       Select(state, variant.sparsifier, variant.options, n, density, data, start);
                     });
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::bench

int main(int argc, char** argv) {
  sparfuse::bench::RegisterAll();
  return sparfuse::bench::Main(argc, argv);
}
