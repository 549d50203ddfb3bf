// Measures the times that the model and the planners compute with, one operation at a time on all
// ranks at once. No step of a method is timed here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/engine/live/live_engine.hpp"
#include "core/fusion/layout.hpp"
#include "harness/records/profile.hpp"
#include "harness/worker/profiling/timed_kernels.hpp"
#include "harness/worker/rank/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse::harness {

struct BackwardEffort {
  int warmup_steps = 0;
  int steps = 0;       // timed, at least
  double seconds = 0;  // more steps are timed if they fit into this
};

// An engine's configuration for measurements: everything in one unit, nothing is sent.
LiveConfig MeasuringConfig(const Rank& rank, GradientLayout layout,
                           std::unique_ptr<Strategy> strategy);

// Announces every gradient and requests no operation, so that only forward, backward and the hooks
// remain.
class Idle final : public Strategy {
 public:
  void GradientReady(Engine&, std::size_t) override {}
};

// Forward and backward of a step that is prepared; seconds of the last micro-step's backward. Takes
// the workload's gradient hook.
double PassWithoutHooks(const Rank& rank, workloads::TrainingWorkload& workload,
                        std::uint64_t step);

// Adds "backward". Trains `workload` for the steps with hooks, which see the single tensors. A pass
// without hooks follows each; its total is the undisturbed time of backward. The tensors' times are
// scaled so that they and the tail add up to that total.
//
//   ready_order  the workload's parameters in the order of `layout`.
//   say          gets the current step and the remaining time.
//
// Collective; takes the workload's gradient hook.
void ProfileBackward(const Rank& rank, workloads::TrainingWorkload& workload,
                     const std::vector<std::size_t>& ready_order, const GradientLayout& layout,
                     const BackwardEffort& effort,
                     const std::function<void(const std::string&)>& say, Profile& profile);

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
