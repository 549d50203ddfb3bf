// Times every registered planner on layouts of 1,000 to 100,000 tensors.
//
// Sizes are spread as models' are, from biases to matrices. Two profiles: `hidden`, in which
// exchanges take less than backward, and `exposed`, in which they take more. The counter `units` is
// of the plan.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>

#include "tests/support/planning.hpp"

namespace sparfuse::testing {
namespace {

constexpr double kDensity = 0.01;
const Topology kTopology{8, 1};

struct Model {
  GradientLayout layout;
  BackwardProfile backward;
  CostModel cost;
};

Model ModelOf(std::size_t tensors, bool hidden) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform;
  Model model;
  for (std::size_t t = 0; t < tensors; ++t) {
    const auto numel = static_cast<std::size_t>(64 * std::exp(9 * uniform(random)));
    model.layout.Add("t" + std::to_string(t), {static_cast<std::int64_t>(numel)}, numel);
    model.backward.backward_seconds.push_back(1e-5 + 4e-10 * static_cast<double>(numel));
  }
  model.cost = DeclaredCost(hidden ? 10 : 0.1, 2e-5);
  return model;
}

void Plans(benchmark::State& state, const PlannerDescriptor& planner, std::size_t tensors,
           bool hidden) {
  const Model model = ModelOf(tensors, hidden);
  const auto made = planner.make(ResolveOptions(planner.name, planner.options, {}));
  const PlanInput input =
      InputOf(model.layout, kTopology, kDensity, Sparsified::kAhead, model.backward, model.cost);
  std::size_t units = 0;
  for (auto _ : state) units = made->MakePlan(input).units.size();
  state.counters["units"] = static_cast<double>(units);
}

void Register() {
  for (const PlannerDescriptor& planner : Planners()) {
    for (const std::size_t tensors : {1000u, 10000u, 100000u}) {
      for (const bool hidden : {true, false}) {
        const std::string name = std::string(planner.name) + "/tensors:" + std::to_string(tensors) +
                                 (hidden ? "/hidden" : "/exposed");
        benchmark::RegisterBenchmark(name.c_str(), [&planner, tensors, hidden](auto& state) {
          Plans(state, planner, tensors, hidden);
        })->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace sparfuse::testing

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  sparfuse::testing::Register();
  benchmark::RunSpecifiedBenchmarks();
}
