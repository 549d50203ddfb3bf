// Runs a profile trial or a fingerprint. A profile measures the costs that the model needs, on as
// many ranks at once as it is for. A fingerprint measures quantities that tell systems apart.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "core/base/clock.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/run/live/launch/launch_watch.hpp"
#include "harness/worker/profiling/fingerprint.hpp"
#include "harness/worker/profiling/links.hpp"
#include "harness/worker/profiling/measurement.hpp"
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

using Say = std::function<void(const std::string&)>;

// Adds the profile of the rank's workload and of the links.
void AddProfile(const Rank& rank, const Say& say, json& outcome) {
  const int steps = rank.config.steps;
  const ProfileEffort effort{
      .backward = {.warmup_steps = rank.config.warmup_steps, .steps = steps, .seconds = 0},
      .repeats = kRepeats,
      .elements = kElements,
      // A sleeping workload leaves the cores idle, and a card's passes do not use them.
      .beside = rank.device.kind == DeviceKind::kHost &&
                !workloads::FindWorkload(rank.config.workload).sleeps};
  const auto workload = MakeTrialWorkload(rank);
  BroadcastState(rank, *workload);
  const Profile profile = MeasureProfile(rank, SubjectOf(rank, *workload), effort, say);
  const auto seconds = [](double value) { return json{{"value", value}, {"unit", "seconds"}}; };
  outcome["profile"] = ToJson(profile);
  outcome["metrics"] = {{"forward_seconds", seconds(profile.backward->forward_seconds)},
                        {"backward_seconds", seconds(*profile.backward->unhooked_seconds)},
                        {"update_seconds", seconds(profile.backward->update_seconds)}};
  outcome["n"] = steps;
  outcome["sampling"] =
      "medians of " + std::to_string(steps) + " steps with hooks and as many passes without, of " +
      std::to_string(kRepeats) + " repeats of a kernel or an exchange; mean over ranks";
}

// Adds a fingerprint and, for two ranks or more, the link costs of the model.
void AddFingerprint(const Rank& rank, const Say& say, json& outcome) {
  const auto begin = std::chrono::steady_clock::now();
  Fingerprint fingerprint;
  const int rounds = MeasureFingerprint(rank, say, fingerprint);
  Profile profile;
  profile.exchange_dispatch_seconds =
      Measurement(profile).Value("/exchange_dispatch_seconds", ExchangeDispatch(rank, kRepeats));
  if (rank.size() > 1) {
    say("links, for models");
    ProfileLinks(rank, kRepeats, profile);
  }
  profile.seconds = SecondsSince(begin);
  outcome["fingerprint"] = ToJson(fingerprint);
  outcome["profile"] = ToJson(profile);
  outcome["n"] = rounds;
  outcome["sampling"] = "medians of " + std::to_string(rounds) +
                        " rounds, of links for models of " + std::to_string(kRepeats) +
                        " repeats; mean over ranks";
}

}  // namespace

void RunProfile(const Rank& rank) {
  const auto say = [&rank](const std::string& what) {
    if (rank.rank() != 0) return;
    std::printf("%s%s\n", kMeasuringLine, what.c_str());
    std::fflush(stdout);  // the controller follows the log
  };
  double load = 0;  // load of other programs, to explain odd times
  if (getloadavg(&load, 1) != 1) load = 0;
  json outcome = {
      {"status", "ok"}, {"reason", ""}, {"checks", json::object()}, {"metrics", json::object()}};
  if (rank.config.is_fingerprint()) {
    AddFingerprint(rank, say, outcome);
  } else {
    AddProfile(rank, say, outcome);
  }
  PrivateFacts facts;
  Machine machine = MachineOf(rank, facts);
  if (rank.rank() != 0) return;
  machine.load_before = load;
  outcome["machine"] = ToJson(machine);
  outcome["software"] = ToJson(SoftwareOfWorker());
  WriteOutcome(rank.directory, outcome, facts);
}

}  // namespace sparfuse::harness
