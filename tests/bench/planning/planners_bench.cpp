// Times every registered planner on layouts of 1,000 to 100,000 tensors.
//
// Sizes are spread like those of models, from biases to matrices. There are two profiles: in
// `hidden`, exchanges take less time than backward, and in `exposed`, more. The counter `units` is
// the number of units of the plan.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

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

struct Case {
  std::string label;
  const PlannerDescriptor* planner;
  Options options;
};

// Every planner with its defaults, and some with options that make them search more.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const PlannerDescriptor& planner : Planners()) {
    cases.push_back({std::string(planner.name), &planner, {}});
  }
  cases.push_back({"adtopk-hybrid", &FindPlanner("adtopk"), {{"partial", true}, {"hybrid", true}}});
  cases.push_back({"espresso-cpu", &FindPlanner("espresso"), {{"cpu", true}, {"two_level", true}}});
  cases.push_back({"safusion-paper", &FindPlanner("safusion"), {{"form", std::string("paper")}}});
  cases.push_back(
      {"safusion-authors", &FindPlanner("safusion"), {{"form", std::string("authors")}}});
  return cases;
}

void Plans(benchmark::State& state, const Case& which, std::size_t tensors, bool hidden) {
  const Model model = ModelOf(tensors, hidden);
  const auto made =
      which.planner->make(ResolveOptions(which.label, which.planner->options, which.options));
  const PlanInput input =
      InputOf(model.layout, kTopology, kDensity, Sparsified::kAhead, model.backward, model.cost);
  std::size_t units = 0;
  for (auto _ : state) units = made->MakePlan(input).units.size();
  state.counters["units"] = static_cast<double>(units);
}

void Register() {
  for (const Case& which : Cases()) {
    for (const std::size_t tensors : {1000u, 10000u, 100000u}) {
      for (const bool hidden : {true, false}) {
        const std::string name =
            which.label + "/tensors:" + std::to_string(tensors) + (hidden ? "/hidden" : "/exposed");
        benchmark::RegisterBenchmark(name.c_str(), [which, tensors, hidden](auto& state) {
          Plans(state, which, tensors, hidden);
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
