#include "harness/run/model_trial.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/engine/model/model_engine.hpp"
#include "core/sparsify/nonzeros/nonzeros.hpp"
#include "harness/catalog/fusion_plan_json.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/store/step_log.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr int kTracedRanks = 4;

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

[[noreturn]] void Lacks(const CellConfig& config, const std::string& what) {
  SPARFUSE_THROW(kConfig, "cluster \"" + config.cluster + "\": its profile lacks " + what +
                              "; measure it with sparfuse profile");
}

ModelConfig Configure(const TrialConfig& trial, const json& profiles) {
  const CellConfig& config = trial.cell;
  const int workers = config.workers;
  const bool shared = config.cluster == kThisMachine;
  if (profiles.empty()) Lacks(config, "every measurement");
  const bool declared = profiles.front().contains("declared");
  // Ranks that a machine runs side by side; a declared cluster's devices are not shared.
  const int units = declared ? 0
                             : std::max(1, profiles.front().at("machine").at("cores").get<int>() /
                                               config.threads_per_worker);

  const json* compute = declared ? &profiles.front()
                                 : NearestBelow(profiles, shared ? std::min(workers, units) : 1,
                                                [](const json&) { return true; });
  if (compute == nullptr) Lacks(config, "a backward pass with one rank on the machine");
  const json& times = compute->at("profile");
  GradientLayout layout = MakeLayout(TensorsOf(times), config);
  BackwardProfile backward = BackwardOf(times, layout);
  backward.sleeps = workloads::FindWorkload(config.workload).sleeps;
  CostModel cost = KernelCosts(times);
  if (declared) {
    AddDeclaredLinks(cost, times);
  } else if (workers > 1) {
    std::optional<LinkShape> shape;
    if (config.link) shape = config.link->WithoutHost();
    const json wanted = ToJson(shape);
    const json* link = NearestBelow(profiles, shared ? workers : 2, [&](const json& outcome) {
      return RanksOf(outcome) > 1 && outcome.at("config").at("link") == wanted;
    });
    if (link == nullptr) Lacks(config, "the link " + wanted.dump() + " between two ranks");
    AddLink(cost, link->at("profile"));
    if (config.link) cost.exchange_host_seconds = 1e-6 * config.link->host_us;
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

double StepSeconds(const ModelStep& step) {
  double longest = 0;
  for (const StepRecord& record : step.records) longest = std::max(longest, record.step_seconds);
  return longest;
}

// Half the 95 % interval of the step time, relative to it, that the profiles' errors of measurement
// leave: the first step of the same plan again with other draws of what was measured. Null where
// the profiles do not say how well they are known.
json StepUncertainty(const TrialConfig& trial, const json& profiles, const ModelConfig& model) {
  constexpr int kProfileDraws = 12;
  const bool known = std::any_of(profiles.begin(), profiles.end(), [](const json& outcome) {
    return outcome.at("profile").contains("relative_errors");
  });
  if (!known) return nullptr;
  const double expected = std::log(StepSeconds(SimulateStep(model, 0, 0)));
  double squares = 0;
  for (int draw = 1; draw <= kProfileDraws; ++draw) {
    ModelConfig drawn =
        Configure(trial, PerturbedOutcomes(profiles, static_cast<std::uint64_t>(draw)));
    drawn.plan = model.plan;
    const double off = std::log(StepSeconds(SimulateStep(drawn, 0, 0))) - expected;
    squares += off * off;
  }
  return StudentTQuantile(0.975, kProfileDraws) * std::sqrt(squares / kProfileDraws);
}

// The first step again with other draws of what a declared cluster's file states, planned with
// them: whoever has that cluster measures it before he plans.
json Draws(const TrialConfig& trial, const std::function<json(int)>& drawn, std::uint64_t step) {
  json steps = json::array();
  json exposed = json::array();
  for (int draw = 1; draw <= kDraws; ++draw) {
    const ModelStep simulated = SimulateStep(Configure(trial, drawn(draw)), step, 0);
    steps.push_back(StepSeconds(simulated));
    exposed.push_back(simulated.records.front().exposed_communication_seconds);
  }
  return {{"step_seconds", std::move(steps)},
          {"exposed_communication_seconds", std::move(exposed)}};
}

}  // namespace

json RunModelledTrial(const TrialConfig& trial, const json& profiles,
                      const std::function<json(int)>& drawn,
                      const std::filesystem::path& directory) {
  const CellConfig& config = trial.cell;
  const ModelConfig model = [&] {
    try {
      return Configure(trial, profiles);
    } catch (const json::exception& error) {
      SPARFUSE_THROW(kData,
                     "cluster \"" + config.cluster + "\": its profile is damaged: " + error.what());
    }
  }();
  const workloads::WorkloadDescriptor& workload = workloads::FindWorkload(config.workload);
  const int ranks = model.topology.ranks;
  // A step is one of those after the dense ones. Else every one is like the first.
  const bool varies = model.selection.sigma != 0 || model.sparse_collective->traits().periodic;
  const int steps = varies ? config.steps : 1;
  const int first = DenseWarmupSteps(config);

  StepLog log(static_cast<std::size_t>(ranks));
  std::vector<TracedStep> traced;
  for (int step = 0; step < steps; ++step) {
    ModelStep simulated = SimulateStep(model, static_cast<std::uint64_t>(first + step),
                                       std::min(ranks, kTracedRanks));
    for (std::size_t r = 0; r < log.size(); ++r)
      log[r].push_back({first + step, true, 0, simulated.records[r]});
    if (step + 1 < steps) continue;
    simulated.spans.resize(static_cast<std::size_t>(std::min(ranks, kTracedRanks)));
    traced.push_back({first + step, std::move(simulated.spans)});
  }

  StepLogContext context;
  context.dense_elements = static_cast<double>(model.layout.numel());
  context.units_per_step = static_cast<double>(ranks) * config.batch_per_worker *
                           config.accumulation * static_cast<double>(workload.units_per_sample);
  context.unit = workload.unit;
  context.knows_missing = false;
  json series;
  WriteSteps(directory, log, context, series);
  WriteSpans(directory, traced, series);

  json layout = json::array();
  for (std::size_t t = 0; t < model.layout.tensors(); ++t) {
    const TensorEntry& tensor = model.layout.tensor(t);
    layout.push_back({{"name", tensor.name},
                      {"shape", tensor.shape},
                      {"numel", tensor.numel},
                      {"dense", tensor.dense}});
  }
  json outcome = {{"status", "ok"},
                  {"reason", ""},
                  {"metrics", MetricsOf(log, context)},
                  {"checks", json::object()},
                  {"plan", model.plan.UnitSizes()},
                  {"plans", json::array({PlanSummary(model.plan, model.layout, 0)})},
                  {"layout", std::move(layout)},
                  {"machine", profiles.front().at("machine")},
                  {"software", profiles.front().at("software")},
                  {"series", std::move(series)}};
  if (drawn) outcome["draws"] = Draws(trial, drawn, static_cast<std::uint64_t>(first));
  const json uncertainty = StepUncertainty(trial, profiles, model);
  if (!uncertainty.is_null())
    outcome["metrics"]["step_uncertainty"] = {{"value", uncertainty}, {"unit", "1"}};
  if (!profiles.front().contains("declared")) {
    const std::vector<std::string> assumed = AssumedWork(profiles.front().at("profile"));
    if (!assumed.empty()) outcome["assumed"] = assumed;
  }
  if (const auto& table = workload.table) {
    outcome["table"] = {{"source", workload.summary},
                        {"measured_on", table->times ? json(table->times->measured_on) : json()}};
  }
  for (const char* key : {"calibration", "inputs"}) {
    if (profiles.front().contains(key)) outcome[key] = profiles.front().at(key);
  }
  return outcome;
}

}  // namespace sparfuse::harness
