// Runs a profile trial: measures what the model computes with, on as many ranks at once as the
// profile is for.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness/catalog/python_file.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/worker/profiling/profiler.hpp"
#include "harness/worker/rank/rank.hpp"
#include "harness/worker/rank/ready_order.hpp"
#include "harness/worker/rank/replica.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr int kRepeats = 9;
constexpr std::size_t kElements = 1'000'000;
constexpr double kDensities[] = {0.001, 0.01, 0.1};

ProfileSubject SubjectOf(const Rank& rank, workloads::TrainingWorkload& workload) {
  ProfileSubject subject{workload, ObserveReadyOrder(rank, workload), {}, {}};
  for (const std::string& name : rank.config.sparsifiers) {
    const SparsifierDescriptor& descriptor = ResolveSparsifier(name);
    subject.sparsifiers.push_back(
        {&descriptor,
         descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1),
         {std::begin(kDensities), std::end(kDensities)}});
  }
  for (const std::string& name : rank.config.quantizers) {
    const QuantizerDescriptor& descriptor = FindQuantizer(name);
    subject.quantizers.push_back(
        descriptor.make(ResolveOptions(descriptor.name, descriptor.options, {}), 1));
  }
  return subject;
}

}  // namespace

void RunProfile(const Rank& rank) {
  const int steps = rank.config.steps;
  const ProfileEffort effort{
      .backward = {.warmup_steps = rank.config.warmup_steps, .steps = steps, .seconds = 0},
      .repeats = kRepeats,
      .elements = kElements,
      // Whoever sleeps leaves the cores alone; and a card's passes take none.
      .beside = rank.device.kind == DeviceKind::kHost &&
                !workloads::FindWorkload(rank.config.workload).sleeps};
  const auto say = [&rank](const std::string& what) {
    if (rank.rank() != 0) return;
    std::printf("%s%s\n", kMeasuringLine, what.c_str());
    std::fflush(stdout);  // the controller follows the log
  };
  double load = 0;  // of what runs beside this trial, for who wonders about its times
  if (getloadavg(&load, 1) != 1) load = 0;
  const auto workload = MakeTrialWorkload(rank);
  BroadcastState(rank, *workload);
  json profile = MeasureProfile(rank, SubjectOf(rank, *workload), effort, say);
  PrivateFacts facts;
  Machine machine = MachineOf(rank, facts);
  if (rank.rank() != 0) return;
  machine.load_before = load;
  const auto seconds = [](double value) { return json{{"value", value}, {"unit", "seconds"}}; };
  const json& measured = profile["backward"];
  json outcome;
  outcome["status"] = "ok";
  outcome["reason"] = "";
  outcome["checks"] = json::object();
  outcome["metrics"] = {{"forward_seconds", seconds(measured["forward_seconds"])},
                        {"backward_seconds", seconds(measured["unhooked_seconds"])},
                        {"update_seconds", seconds(measured["update_seconds"])}};
  outcome["n"] = steps;
  outcome["profile"] = std::move(profile);
  outcome["machine"] = ToJson(machine);
  outcome["software"] = ToJson(SoftwareOfWorker());
  outcome["sampling"] =
      "medians of " + std::to_string(steps) + " steps with hooks and as many passes without, of " +
      std::to_string(kRepeats) + " repeats of a kernel or an exchange; mean over ranks";
  WriteOutcome(rank.directory, outcome, facts);
}

}  // namespace sparfuse::harness
