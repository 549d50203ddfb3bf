// Measures the times that the model and the planners compute with, one operation at a time on all
// ranks at once. No step of a method is timed here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/coding/quantizers/quantizer.hpp"
#include "harness/worker/profiling/backward_profile.hpp"
#include "harness/worker/profiling/timed_kernels.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

struct ProfileEffort {
  BackwardEffort backward;
  int repeats = 0;           // of a kernel and of an exchange
  std::size_t elements = 0;  // kernels are timed up to this size, and to the whole gradient
  bool beside = false;       // processor time of exchanges in parallel to passes of the workload
};

struct ProfileSubject {
  workloads::TrainingWorkload& workload;  // is trained on
  std::vector<std::size_t> ready_order;   // its parameters
  std::vector<TimedSparsifier> sparsifiers;
  std::vector<std::unique_ptr<Quantizer>> quantizers;
};

// The "profile" of an outcome (docs/profiles-and-clusters.md): means over ranks of medians, the
// same on all ranks. Collective; takes the workload's gradient hook.
//
//   say  gets the next measurement's name, on every rank.
Profile MeasureProfile(
    const Rank& rank, const ProfileSubject& subject, const ProfileEffort& effort,
    const std::function<void(const std::string&)>& say = [](const std::string&) {});

}  // namespace sparfuse::harness
