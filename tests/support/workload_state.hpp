// Makes small configurations of the workloads, trains them step by step and compares their state.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "tests/support/errors.hpp"
#include "workloads/catalog/catalog.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::workloads::testing {

inline WorkloadConfig SmallConfig(const Stream& stream = {},
                                  Precision precision = Precision::kFp32) {
  WorkloadConfig config;
  config.batch_per_worker = 4;
  config.seed = 3;
  config.stream = stream;
  config.precision = precision;
  return config;
}

// One update by this workload's own gradient on the batch of `step`. Returns the loss before it.
inline float TrainOnce(TrainingWorkload& workload, std::uint64_t step, std::uint64_t update) {
  workload.SetGradientHook([&](std::size_t parameter, const float* gradient, std::size_t) {
    workload.SetGradient(parameter, gradient);
  });
  workload.ClearGradients();
  const float loss = workload.Forward(step, 0);
  workload.Backward(true);
  workload.Update(update);
  return loss;
}

// Expects that an error thrown in a gradient hook comes out of Backward.
inline void ExpectAnErrorInAHookLeavesBackward(TrainingWorkload& workload) {
  workload.SetGradientHook(
      [](std::size_t, const float*, std::size_t) { SPARFUSE_THROW(kComm, "lost a peer"); });
  workload.ClearGradients();
  workload.Forward(0, 0);
  sparfuse::testing::ExpectError(FailureKind::kComm, {"lost a peer"},
                                 [&] { workload.Backward(true); });
}

using State = std::vector<std::vector<float>>;

inline State StateOf(TrainingWorkload& workload) {
  State state;
  for (const DeviceSpan<float>& part : workload.DeviceState()) {
    std::vector<float> host(part.size);
    workload.CopyState(state.size(), host);
    state.push_back(std::move(host));
  }
  return state;
}

inline bool SameBits(const State& a, const State& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    if (std::memcmp(a[i].data(), b[i].data(), 4 * a[i].size()) != 0) return false;
  }
  return true;
}

// The Euclidean distance of `a` and `b`, relative to the length of `a`.
inline double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    length += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(difference / length);
}

// The names of the workloads that have real data.
inline std::vector<std::string> WorkloadNames() {
  std::vector<std::string> names;
  for (const WorkloadDescriptor& workload : Workloads()) {
    if (!workload.synthetic()) names.push_back(workload.name);
  }
  return names;
}

inline std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace sparfuse::workloads::testing
