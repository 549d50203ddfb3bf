// A profile trial: what the model computes with, on as many ranks at once as the profile is for.
#include <string>

#include "harness/python_file.hpp"
#include "harness/worker/calibration.hpp"
#include "harness/worker/profiler.hpp"
#include "harness/worker/rank.hpp"
#include "harness/worker/replica.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;

constexpr ProfileEffort kEffort{.warmup_steps = 4, .steps = 16, .seconds = 0, .repeats = 9};
constexpr double kDensities[] = {0.001, 0.01, 0.1};

ProfileSubject SubjectOf(const Rank& rank, TrainingWorkload& workload) {
  ProfileSubject subject{workload, ObserveReadyOrder(rank, workload), {}, {}};
  for (const json& name : rank.config.at("sparsifiers")) {
    const SparsifierDescriptor& descriptor = ResolveSparsifier(name.get<std::string>());
    subject.sparsifiers.push_back(
        {&descriptor,
         descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1),
         {std::begin(kDensities), std::end(kDensities)}});
  }
  for (const json& name : rank.config.at("quantizers")) {
    const QuantizerDescriptor& descriptor = FindQuantizer(name.get<std::string>());
    subject.quantizers.push_back(
        descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1));
  }
  return subject;
}

}  // namespace

void RunProfile(const Rank& rank) {
  const auto workload = MakeTrialWorkload(rank);
  BroadcastState(rank, *workload);
  json profile = MeasureProfile(rank, SubjectOf(rank, *workload), kEffort);
  json machine = MachineOf(rank);
  if (rank.rank() != 0) return;
  const auto seconds = [](double value) { return json{{"value", value}, {"unit", "seconds"}}; };
  const json& measured = profile["backward"];
  double backward = measured["tail_seconds"];
  for (const json& tensor : measured["tensors"]) backward += tensor["seconds"].get<double>();
  json outcome;
  outcome["status"] = "ok";
  outcome["reason"] = "";
  outcome["checks"] = json::object();
  outcome["metrics"] = {{"forward_seconds", seconds(measured["forward_seconds"])},
                        {"backward_seconds", seconds(backward)},
                        {"update_seconds", seconds(measured["update_seconds"])}};
  outcome["profile"] = std::move(profile);
  outcome["machine"] = std::move(machine);
  outcome["software"] = SoftwareOfWorker();
  outcome["sampling"] = "medians of " + std::to_string(kEffort.steps) + " steps, of " +
                        std::to_string(kEffort.repeats) +
                        " repeats of a kernel or an exchange; mean over ranks";
  WriteOutcome(rank.directory, outcome);
}

}  // namespace sparfuse
