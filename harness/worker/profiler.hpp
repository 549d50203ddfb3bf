// How long single operations take: what the model and the planners compute with, measured one
// operation at a time on all ranks at once. No step of a method is timed here.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/quantize/quantizer.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/worker/rank.hpp"
#include "workloads/workload.hpp"

namespace sparfuse {

struct ProfileEffort {
  int warmup_steps = 0;
  int steps = 0;       // timed, at least
  double seconds = 0;  // more steps are timed where they fit into this
  int repeats = 0;     // of a kernel and of an exchange
};

struct TimedSparsifier {
  const SparsifierDescriptor* descriptor = nullptr;
  std::unique_ptr<Sparsifier> sparsifier;
  std::vector<double> densities;
};

struct ProfileSubject {
  TrainingWorkload& workload;            // is trained on
  std::vector<std::size_t> ready_order;  // its parameters
  std::vector<TimedSparsifier> sparsifiers;
  std::vector<std::unique_ptr<Quantizer>> quantizers;
};

// The "profile" of an outcome (harness/README.md): means over ranks of medians, the same on all
// ranks. Collective; takes the workload's gradient hook.
nlohmann::json MeasureProfile(const Rank& rank, const ProfileSubject& subject,
                              const ProfileEffort& effort);

}  // namespace sparfuse
