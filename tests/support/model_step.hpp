// Runs one step of a workload's model on a small batch, and checks its gradients against its layer
// table.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "workloads/models/layers.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads::testing {

// The largest memory of this process since the last call, in GB; 0 if Linux does not tell.
inline double PeakGigabytes() {
  double kilobytes = 0;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return kilobytes * 1024 / 1e9;
}

// Expects that the gradients' names, shapes and order are exactly the table's, and that every
// gradient is finite and not 0 everywhere. Prints the memory and time of the step.
inline void ExpectAStepAsTheTableSays(const std::string& name, std::size_t batch, int threads) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  malloc_trim(0);  // frees the last model's memory
  PeakGigabytes();
  auto start = Clock::now();
  WorkloadConfig config;
  config.batch_per_worker = batch;
  config.seed = 3;
  config.threads = threads;
  const auto workload = MakeWorkload(name, config);
  const double build_seconds = since(start);
  const LayerTable& table = LayersOf(name);
  const std::vector<ParameterInfo>& infos = workload->Parameters();
  std::size_t ready = 0;
  workload->SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t numel) {
    ASSERT_LT(ready, table.tensors.size());
    const LayerTensor& expected = table.tensors[ready];
    EXPECT_EQ(infos[parameter].name, expected.name) << "ready as number " << ready;
    EXPECT_EQ(infos[parameter].shape, expected.shape) << expected.name;
    EXPECT_EQ(numel, expected.numel) << expected.name;
    double sum = 0;
    for (std::size_t i = 0; i < numel; ++i) sum += std::fabs(static_cast<double>(gradient[i]));
    EXPECT_TRUE(std::isfinite(sum)) << expected.name;
    EXPECT_GT(sum, 0.0) << expected.name;
    ++ready;
  });
  start = Clock::now();
  EXPECT_TRUE(std::isfinite(workload->Forward(0, 0)));
  workload->Backward(true);
  const double step_seconds = since(start);
  EXPECT_EQ(ready, table.tensors.size());
  std::set<std::string> names(table.without_gradient.begin(), table.without_gradient.end());
  for (const LayerTensor& tensor : table.tensors) names.insert(tensor.name);
  EXPECT_EQ(names.size(), infos.size());
  for (const ParameterInfo& info : infos) EXPECT_TRUE(names.contains(info.name)) << info.name;
  std::printf("%-24s batch %zu, %d thread(s): built in %6.2f s, step %6.2f s, peak %5.2f GB\n",
              name.c_str(), batch, threads, build_seconds, step_seconds, PeakGigabytes());
}

}  // namespace sparfuse::workloads::testing
