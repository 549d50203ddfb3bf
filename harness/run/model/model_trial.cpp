#include "harness/run/model/model_trial.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "harness/catalog/fusion_plan.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/store/step_log.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr int kTracedRanks = 4;
constexpr std::size_t kMostTracedSteps = 64;  // longest traced window

// Half the 95 % interval of the step time, relative to it, from the profiles' measurement errors.
// Models a usual step, or the first window, of the same plan again with other draws of the
// measurements. Nothing if the profiles do not state their errors.
std::optional<double> StepUncertainty(const TrialConfig& trial, const ProfileOutcomes& profiles,
                                      const ModelConfig& model) {
  constexpr int kProfileDraws = 12;
  if (!KnowsErrors(profiles)) return std::nullopt;
  const double expected = std::log(UsualStepSeconds(trial.cell, model));
  double squares = 0;
  for (int draw = 1; draw <= kProfileDraws; ++draw) {
    ModelConfig drawn =
        ConfigureModel(trial, PerturbedOutcomes(profiles, static_cast<std::uint64_t>(draw)));
    drawn.plan = model.plan;
    const double off = std::log(UsualStepSeconds(trial.cell, drawn)) - expected;
    squares += off * off;
  }
  return StudentTQuantile(0.975, kProfileDraws) * std::sqrt(squares / kProfileDraws);
}

// Draws of the metrics: models a usual step with other draws of the declared cluster's inputs.
// Each metric is scaled by the ratio of the trial's value to this step.
std::map<std::string, std::vector<double>> Draws(const TrialConfig& trial,
                                                 const ProfileOutcomes& profiles,
                                                 const std::function<ProfileOutcomes(int)>& drawn,
                                                 const MetricValues& metrics) {
  const StepModel usual = ModelUsualStep(trial, profiles);
  const auto over_usual = [&](const std::string& metric, double modelled) {
    const auto said = metrics.find(metric);
    if (said == metrics.end() || !said->second.value || !(modelled > 0)) return 1.0;
    return *said->second.value / modelled;
  };
  const std::string seconds = "step_seconds", exposed = "exposed_communication_seconds";
  const double of_step = over_usual(seconds, usual.seconds);
  const double of_exposed = over_usual(exposed, usual.exposed_seconds);
  std::map<std::string, std::vector<double>> draws;
  for (int draw = 1; draw <= kDraws; ++draw) {
    const StepModel step = ModelUsualStep(trial, drawn(draw));
    draws[seconds].push_back(of_step * step.seconds);
    draws[exposed].push_back(of_exposed * step.exposed_seconds);
  }
  return draws;
}

}  // namespace

Outcome RunModelledTrial(const TrialConfig& trial, const ProfileOutcomes& profiles,
                         const std::function<ProfileOutcomes(int)>& drawn,
                         const std::filesystem::path& directory) {
  const CellConfig& config = trial.cell;
  const ModelConfig model = [&] {
    try {
      return ConfigureModel(trial, profiles);
    } catch (const Error& error) {
      if (error.kind() != FailureKind::kData) throw;
      SPARFUSE_THROW(kData,
                     "cluster \"" + config.cluster + "\": its profile is damaged: " + error.what());
    }
  }();
  const workloads::WorkloadDescriptor& workload = workloads::FindWorkload(config.workload);
  const int ranks = model.topology.ranks;
  const bool windows = config.method_options.has_local_steps();
  const int every = config.method_options.window_steps();
  const int first = windows ? every : FirstModelledStep(config, model);
  const ProfileOutcome& first_profile = profiles.front();

  StepLog log(static_cast<std::size_t>(ranks));
  std::vector<TracedStep> traced;
  const int tracing = std::min(ranks, kTracedRanks);
  std::vector<ModelStep> steps = SimulateCell(config, model, true, tracing);
  const Formulas formulas = FormulasOf(std::span(steps).first(static_cast<std::size_t>(every)));
  std::vector<double> now(static_cast<std::size_t>(tracing));  // clocks of traced ranks
  for (std::size_t step = 0; step < steps.size(); ++step) {
    ModelStep& simulated = steps[step];
    const std::int64_t number = first + static_cast<std::int64_t>(step);
    for (std::size_t r = 0; r < log.size(); ++r)
      log[r].push_back({number, true, 0, simulated.records[r]});
    const std::vector<double> began = now;
    for (std::size_t r = 0; r < now.size(); ++r) now[r] += simulated.records[r].step_seconds;
    if (step + std::min<std::size_t>(static_cast<std::size_t>(every), kMostTracedSteps) <
        steps.size())
      continue;
    simulated.spans.resize(now.size());
    traced.push_back({number, std::move(simulated.spans), began});
    if (!windows) traced.back().began_seconds.clear();
  }

  StepLogContext context;
  context.dense_elements = static_cast<double>(model.layout.numel());
  context.units_per_step = static_cast<double>(ranks) * config.batch_per_worker *
                           config.accumulation * static_cast<double>(workload.units_per_sample);
  context.unit = workload.unit;
  context.knows_missing = false;
  context.every = every;
  Outcome outcome;
  WriteSteps(directory, log, context, outcome.series);
  WriteSpans(directory, traced, outcome.series, every);
  outcome.metrics = MetricsOf(log, context);
  outcome.metrics["local_seconds"] = {formulas.local_seconds, "s"};
  outcome.metrics["wire_seconds"] = {formulas.wire_seconds, "s"};
  if (windows) {
    outcome.metrics["method_memory_bytes"] = {static_cast<double>(MethodMemoryBytes(model)),
                                              "bytes"};
  }
  outcome.plan = model.plan.UnitSizes();
  outcome.plans = json::array({ToJson(SummaryOf(model.plan, model.layout, 0))});
  outcome.layout = LayoutOf(model.layout);
  outcome.machine = MachineIn(first_profile.machine, "the profile's machine");
  // A declared cluster has no software.
  if (!first_profile.software.empty())
    outcome.software = SoftwareIn(first_profile.software, "the profile's software");
  if (drawn) outcome.draws = Draws(trial, profiles, drawn, outcome.metrics);
  if (const auto uncertainty = StepUncertainty(trial, profiles, model))
    outcome.metrics["step_uncertainty"] = {*uncertainty, "1"};
  if (!first_profile.declared || (first_profile.card && first_profile.card->used))
    outcome.assumed = AssumedWork(first_profile.profile, model.coding);
  if (const auto& table = workload.table) {
    outcome.table = {{"source", workload.summary},
                     {"measured_on", table->times ? json(table->times->measured_on) : json()}};
  }
  const json said = ToJson(first_profile);
  outcome.calibration = said.value("calibration", json());
  outcome.inputs = said.value("inputs", json());
  outcome.card = said.value("card", json());
  return outcome;
}

}  // namespace sparfuse::harness
