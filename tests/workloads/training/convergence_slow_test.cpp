// Tests that dense training alone reaches the catalog's metric within the catalog's number of
// steps. Takes some five minutes on one core.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "workloads/catalog/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {
namespace {

class Convergence : public ::testing::TestWithParam<std::string> {};

TEST_P(Convergence, ReachesTheTarget) {
  const WorkloadDescriptor& descriptor = FindWorkload(GetParam());
  WorkloadConfig config;
  config.total_steps = descriptor.target_steps;
  const auto workload = MakeWorkload(descriptor.name, config);
  const Evaluation untrained = workload->Evaluate(0);
  workload->SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t) {
    workload->SetGradient(parameter, gradient);
  });
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t step = 0; step < config.total_steps; ++step) {
    workload->ClearGradients();
    workload->Forward(step, 0);
    workload->Backward(true);
    workload->Update(step);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const Evaluation evaluation = workload->Evaluate(0);
  std::printf("%s: %s %.4f after %llu steps, %.1f s; target %.4f\n", descriptor.name.c_str(),
              descriptor.metric.c_str(), evaluation.metric,
              static_cast<unsigned long long>(config.total_steps), seconds.count(),
              descriptor.target);
  EXPECT_LT(evaluation.loss, 0.6 * untrained.loss);
  if (descriptor.higher_is_better) {
    EXPECT_GE(evaluation.metric, 4 * untrained.metric) << "an untrained model guesses";
    EXPECT_GE(evaluation.metric, descriptor.target);
  } else {
    EXPECT_LE(evaluation.metric, descriptor.target);
    EXPECT_LT(evaluation.metric, 0.6 * workload->UnigramBaseline().value());
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (!workload.synthetic()) names.push_back(workload.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Workloads, Convergence, ::testing::ValuesIn(Names()));

}  // namespace
}  // namespace sparfuse::workloads
