// Measures how unevenly one rank's selection lies over a tensor, and compares it with the model's
// skew. Takes some half a minute of training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/collective/overlap.hpp"
#include "tests/support/workload_state.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads {
namespace {

constexpr double kDensity = 0.01;
constexpr std::uint64_t kSteps = 150, kFirst = 50;

// By number of equal regions of a tensor: the selected elements of the fullest region, as a
// multiple of the mean over regions. The selection is top-k with error feedback. The result is a
// mean over tensors and over steps 50 to 149, weighted by selected elements.
std::map<std::size_t, double> LargestShares(const std::string& name) {
  WorkloadConfig config;
  config.seed = 1;
  const auto workload = MakeWorkload(name, config);
  std::vector<std::vector<float>> residuals, sent;
  for (const ParameterInfo& info : workload->Parameters()) {
    residuals.emplace_back(info.numel);
    sent.emplace_back(info.numel);
  }
  std::map<std::size_t, double> fullest = {{4, 0}, {8, 0}};
  double selected = 0;
  std::uint64_t step = 0;
  workload->SetGradientHook([&](std::size_t p, const float* gradient, std::size_t n) {
    std::vector<float>& residual = residuals[p];
    std::vector<float> magnitudes(n);
    for (std::size_t i = 0; i < n; ++i) magnitudes[i] = std::abs(residual[i] += gradient[i]);
    const auto k =
        std::max<std::size_t>(1, static_cast<std::size_t>(kDensity * static_cast<double>(n)));
    const auto kth = magnitudes.end() - static_cast<std::ptrdiff_t>(k);
    std::nth_element(magnitudes.begin(), kth, magnitudes.end());
    std::fill(sent[p].begin(), sent[p].end(), 0.0f);
    std::map<std::size_t, std::vector<double>> counts;
    for (const auto& [regions, sum] : fullest) counts[regions].resize(regions);
    for (std::size_t i = 0; i < n; ++i) {
      if (std::abs(residual[i]) < *kth || residual[i] == 0) continue;
      sent[p][i] = std::exchange(residual[i], 0.0f);
      for (auto& [regions, count] : counts) ++count[i * regions / n];
    }
    workload->SetGradient(p, sent[p].data());
    if (step < kFirst) return;
    for (auto& [regions, sum] : fullest) {
      const std::vector<double>& count = counts.at(regions);
      sum += *std::max_element(count.begin(), count.end()) * static_cast<double>(regions);
    }
    selected += static_cast<double>(k);
  });
  for (; step < kSteps; ++step) {
    workload->ClearGradients();
    workload->Forward(step, 0);
    workload->Backward(true);
    workload->Update(step);
  }
  for (auto& [regions, sum] : fullest) sum /= selected;
  return fullest;
}

// The skew with which the model's largest of `regions` regions is `measured`.
double SkewFor(std::size_t regions, double measured) {
  double low = 0, high = 4;
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (OverlapModel{.skew = middle}.LargestRegion(regions) < measured ? low : high) = middle;
  }
  return low;
}

class RegionShare : public ::testing::TestWithParam<std::string> {};

TEST_P(RegionShare, IsTheModels) {
  constexpr double kBound = 0.10;  // relative
  const OverlapModel model = OverlapOf(FindWorkload(GetParam()));
  for (const auto& [regions, measured] : LargestShares(GetParam())) {
    const double modelled = model.LargestRegion(regions);
    std::printf(
        "%s: the fullest of %zu regions has %.3f times the mean, modelled %.3f; skew %.3f\n",
        GetParam().c_str(), regions, measured, modelled, SkewFor(regions, measured));
    EXPECT_NEAR(modelled / measured, 1, kBound) << regions;
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, RegionShare,
                         ::testing::Values("digits-resnet", "text-gpt", "text-lstm"),
                         testing::TestName);

}  // namespace
}  // namespace sparfuse::workloads
