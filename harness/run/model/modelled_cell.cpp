#include "harness/run/model/modelled_cell.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "core/sparsify/descriptors.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/measured/fingerprint_file.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/statistics/statistics.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

int RanksOf(const json& outcome) { return outcome.at("config").at("workers").get<int>(); }

// The profile measured with `ranks` at once, or else with the most ranks below; null if none.
const json* NearestBelow(const json& profiles, int ranks,
                         const std::function<bool(const json&)>& fits) {
  const json* best = nullptr;
  for (const json& outcome : profiles) {
    if (!fits(outcome) || RanksOf(outcome) > ranks) continue;
    if (best == nullptr || RanksOf(outcome) > RanksOf(*best)) best = &outcome;
  }
  return best;
}

int RanksPerNodeOf(const json& outcome) {
  return outcome.at("config").at("ranks_per_node").get<int>();
}
bool HasLinksWithin(const json& outcome) {
  const json& link = outcome.at("config").at("link");
  return StoredLink(link).value_or(LinkShape()).has_within();
}

// Whether each machine had a part of the ranks: their links are those between machines.
bool IsAcrossMachines(const json& outcome) {
  const json& config = outcome.at("config");
  return config.value("mode", "") == "measured" &&
         config.value("ranks_per_node", RanksOf(outcome)) < RanksOf(outcome);
}

// Of ranks that have a machine each, in the model: the link of the number of ranks nearest to the
// cell's, of those measured across machines where there are any. More ranks than a machine has
// cores for measure the machine. Null if none fits.
const json* NearestLink(const json& profiles, int workers, int threads,
                        const std::function<bool(const json&)>& fits) {
  const json* best = nullptr;
  const auto off = [&](const json& outcome) {
    return std::abs(std::log(static_cast<double>(RanksOf(outcome)) / workers));
  };
  for (const json& outcome : profiles) {
    const bool across = IsAcrossMachines(outcome);
    const int cores = outcome.at("machine").at("cores").get<int>();
    const int fewest = 2 * (HasLinksWithin(outcome) ? RanksPerNodeOf(outcome) : 1);
    if (!fits(outcome) || (!across && RanksOf(outcome) > std::max(fewest, cores / threads)))
      continue;
    const bool better = best == nullptr || across > IsAcrossMachines(*best) ||
                        (across == IsAcrossMachines(*best) && off(outcome) < off(*best));
    if (better) best = &outcome;
  }
  return best;
}

// How many times as long as `alone`, of ranks with a core each, a step without communication keeps
// the cores when more ranks share them: they displace one another's caches, and some end early.
// From when all are through; 1 where a profile is from before that was measured.
double SlowdownOfSharing(const json& alone, const json& shared, int units) {
  const auto seconds_a_rank = [units](const json& outcome) {  // of a core that has work
    const int ranks = RanksOf(outcome);
    return outcome.at("profile").at("backward").value("all_ranks_seconds", 0.0) *
           std::min(units, ranks) / ranks;
  };
  const double least = seconds_a_rank(alone);
  return least > 0 ? std::max(1.0, seconds_a_rank(shared) / least) : 1;
}

[[noreturn]] void Lacks(const CellConfig& config, const std::string& what) {
  SPARFUSE_THROW(kConfig, "cluster \"" + config.cluster + "\": its profile lacks " + what +
                              "; measure it with sparfuse profile");
}

}  // namespace

ModelConfig ConfigureModel(const TrialConfig& trial, const json& profiles) {
  const CellConfig& config = trial.cell;
  const int workers = config.workers;
  const bool shared = config.cluster == kThisMachine;
  if (profiles.empty()) Lacks(config, "every measurement");
  const bool declared = profiles.front().contains("declared");
  // Ranks that a machine runs side by side; a declared cluster's devices are not shared.
  const int units = declared ? 0
                             : std::max(1, profiles.front().at("machine").at("cores").get<int>() /
                                               config.threads_per_worker);

  const json* compute = declared
                            ? &profiles.front()
                            : NearestBelow(profiles, shared ? std::min(workers, units) : 1,
                                           [](const json& each) { return !IsFingerprint(each); });
  if (compute == nullptr) Lacks(config, "a backward pass with one rank on the machine");
  const json& times = compute->at("profile");
  GradientLayout layout = MakeLayout(TensorsOf(times), config);
  BackwardProfile backward = BackwardOf(times, layout);
  backward.sleeps = workloads::FindWorkload(config.workload).sleeps;
  if (shared && workers > units) {
    const json* together =
        NearestBelow(profiles, workers, [](const json& each) { return !IsFingerprint(each); });
    backward.Slow(SlowdownOfSharing(*compute, *together, units));
  }
  CostModel cost = KernelCosts(times);
  if (declared) {
    AddDeclaredLinks(cost, times);
  } else if (workers > 1) {
    const json wanted = ToJson(config.measured_link());
    // Of links within nodes and between them only as many ranks a node as the cell has, and several
    // nodes where it has several, measured both.
    const bool several_nodes = workers > config.ranks_per_node;
    const auto fits = [&](const json& outcome) {
      return RanksOf(outcome) > 1 && outcome.at("config").at("link") == wanted &&
             (!HasLinksWithin(outcome) ||
              (RanksPerNodeOf(outcome) == config.ranks_per_node &&
               (RanksOf(outcome) > RanksPerNodeOf(outcome)) == several_nodes));
    };
    const auto of_fingerprint = [&](const json& outcome) {
      return IsFingerprint(outcome) && fits(outcome);
    };
    const int threads = config.threads_per_worker;
    const json* link = shared ? NearestBelow(profiles, workers, fits)
                              : NearestLink(profiles, workers, threads, of_fingerprint);
    if (link == nullptr && !shared) link = NearestLink(profiles, workers, threads, fits);
    if (link == nullptr) Lacks(config, "the link " + wanted.dump() + " between two ranks");
    AddLink(cost, link->at("profile"));
    cost.exchange_host_seconds = config.exchange_host_seconds();
  }

  ModelConfig model =
      MakeModelConfig(Compose(config), std::move(layout), {workers, config.ranks_per_node},
                      std::move(backward), std::move(cost), trial.seed);
  if (!model.index_shared) {
    const std::size_t together = model.overlap.together;
    model.overlap = workloads::OverlapOf(workloads::FindWorkload(config.workload));
    model.overlap.together = together;
  }
  const auto& natural = workloads::FindWorkload(config.workload).natural;
  if (natural && config.sparsifier == kNonzeros) {
    model.overlap.together = std::max(model.overlap.together, natural->row);
  }
  model.cores_per_machine = units;
  model.ranks_per_machine = shared ? workers : 1;
  return model;
}

namespace {

StepModel ModelSome(const TrialConfig& trial, const json& profiles, bool all) {
  const ModelConfig model = ConfigureModel(trial, profiles);
  const int first = DenseWarmupSteps(trial.cell);
  const int steps = all ? SimulatedSteps(trial.cell, model) : 1;
  std::vector<double> seconds, exposed;
  for (int step = 0; step < steps; ++step) {
    const ModelStep simulated = SimulateStep(model, static_cast<std::uint64_t>(first + step), 0);
    seconds.push_back(StepSeconds(simulated));
    exposed.push_back(simulated.records.front().exposed_communication_seconds);
  }
  return {Median(seconds), Median(exposed)};
}

}  // namespace

StepModel ModelSteps(const TrialConfig& trial, const json& profiles) {
  return ModelSome(trial, profiles, true);
}

StepModel ModelFirstStep(const TrialConfig& trial, const json& profiles) {
  return ModelSome(trial, profiles, false);
}

int SimulatedSteps(const CellConfig& config, const ModelConfig& model) {
  const bool varies = model.selection.sigma != 0 || model.sparse_collective->traits().periodic;
  return varies ? config.steps : 1;
}

double StepSeconds(const ModelStep& step) {
  double longest = 0;
  for (const StepRecord& record : step.records) longest = std::max(longest, record.step_seconds);
  return longest;
}

}  // namespace sparfuse::harness
