#include "harness/run/model/modelled_cell.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "core/sparsify/descriptors.hpp"
#include "harness/catalog/fusion_plan.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/clusters/profile_data.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/store/step_log.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

using Fits = std::function<bool(const ProfileOutcome&)>;

// The profile measured with `ranks` ranks at once, else with the most ranks below; null if none.
const ProfileOutcome* NearestBelow(const ProfileOutcomes& profiles, int ranks, const Fits& fits) {
  const ProfileOutcome* best = nullptr;
  for (const ProfileOutcome& outcome : profiles) {
    if (!fits(outcome) || outcome.config.workers > ranks) continue;
    if (best == nullptr || outcome.config.workers > best->config.workers) best = &outcome;
  }
  return best;
}

bool HasLinksWithin(const CellConfig& config) { return config.link && config.link->has_within(); }

// Whether the ranks were spread over machines, so that their links are between machines.
bool IsAcrossMachines(const CellConfig& config) {
  return config.mode == Mode::kMeasured && config.ranks_per_node < config.workers;
}

int CoresOf(const ProfileOutcome& outcome) {
  const auto cores = outcome.machine.find("cores");
  if (cores == outcome.machine.end() || !cores->is_number_integer())
    SPARFUSE_THROW(kData, "the profile does not state its machine's cores");
  return cores->get<int>();
}

// The link for ranks that have a machine each in the model. Its number of ranks is nearest to the
// cell's, among links measured across machines if there are any. More ranks than a machine has
// cores measure the machine and not the link. Null if none fits.
const ProfileOutcome* NearestLink(const ProfileOutcomes& profiles, int workers, int threads,
                                  const Fits& fits) {
  const ProfileOutcome* best = nullptr;
  const auto off = [&](const CellConfig& config) {
    return std::abs(std::log(static_cast<double>(config.workers) / workers));
  };
  for (const ProfileOutcome& outcome : profiles) {
    if (!fits(outcome)) continue;
    const CellConfig& config = outcome.config;
    const bool across = IsAcrossMachines(config);
    const int fewest = 2 * (HasLinksWithin(config) ? config.ranks_per_node : 1);
    if (!across && config.workers > std::max(fewest, CoresOf(outcome) / threads)) continue;
    const bool better =
        best == nullptr || across > IsAcrossMachines(best->config) ||
        (across == IsAcrossMachines(best->config) && off(config) < off(best->config));
    if (better) best = &outcome;
  }
  return best;
}

// The slowdown of a step without communication if ranks share cores, relative to `alone`, where
// each rank has a core. Ranks displace one another's caches, and some end early. The step ends when
// all ranks are through. 1 if this was not measured.
double SlowdownOfSharing(const ProfileOutcome& alone, const ProfileOutcome& shared, int units) {
  const auto seconds_a_rank = [units](const ProfileOutcome& outcome) {  // of a core that has work
    const int ranks = outcome.config.workers;
    const auto& backward = outcome.profile.backward;
    const double seconds = backward ? backward->all_ranks_seconds.value_or(0) : 0;
    return seconds * std::min(units, ranks) / ranks;
  };
  const double least = seconds_a_rank(alone);
  return least > 0 ? std::max(1.0, seconds_a_rank(shared) / least) : 1;
}

[[noreturn]] void Lacks(const CellConfig& config, const std::string& what) {
  SPARFUSE_THROW(kConfig, "cluster \"" + config.cluster + "\": its profile lacks " + what +
                              "; measure it with sparfuse profile");
}

}  // namespace

ModelConfig ConfigureModel(const TrialConfig& trial, const ProfileOutcomes& profiles,
                           KnownLayout* known) {
  const CellConfig& config = trial.cell;
  const int workers = config.workers;
  const bool shared = config.cluster == kThisMachine;
  if (profiles.empty()) Lacks(config, "every measurement");
  const bool declared = profiles.front().declared;
  // Ranks that a machine runs side by side. Devices of a declared cluster are not shared.
  const int units =
      declared ? 0 : std::max(1, CoresOf(profiles.front()) / config.threads_per_worker);

  const auto has_times = [](const ProfileOutcome& each) { return !each.is_fingerprint(); };
  const ProfileOutcome* compute =
      declared ? &profiles.front()
               : NearestBelow(profiles, shared ? std::min(workers, units) : 1, has_times);
  if (compute == nullptr) Lacks(config, "a backward pass with one rank on the machine");
  const Profile& times = compute->profile;
  GradientLayout layout =
      known != nullptr && *known ? **known : MakeLayout(TensorsOf(times), config);
  if (known != nullptr && !*known) *known = layout;
  BackwardProfile backward = BackwardOf(times, layout);
  backward.sleeps = workloads::FindWorkload(config.workload).sleeps;
  if (shared && workers > units) {
    const ProfileOutcome* together = NearestBelow(profiles, workers, has_times);
    backward.Slow(SlowdownOfSharing(*compute, *together, units));
  }
  CostModel cost = KernelCosts(times);
  if (declared) {
    AddDeclaredLinks(cost, times);
  } else if (workers > 1) {
    const std::optional<LinkShape> wanted = config.measured_link();
    // Profiles with links within nodes and between them must have as many ranks per node as the
    // cell, and several nodes if the cell has several.
    const bool several_nodes = workers > config.ranks_per_node;
    const auto fits = [&](const ProfileOutcome& outcome) {
      const CellConfig& measured = outcome.config;
      return measured.workers > 1 && measured.link == wanted &&
             (!HasLinksWithin(measured) ||
              (measured.ranks_per_node == config.ranks_per_node &&
               (measured.workers > measured.ranks_per_node) == several_nodes));
    };
    const auto of_fingerprint = [&](const ProfileOutcome& outcome) {
      return outcome.is_fingerprint() && fits(outcome);
    };
    const int threads = config.threads_per_worker;
    const ProfileOutcome* link = shared ? NearestBelow(profiles, workers, fits)
                                        : NearestLink(profiles, workers, threads, of_fingerprint);
    if (link == nullptr && !shared) link = NearestLink(profiles, workers, threads, fits);
    if (link == nullptr) {
      Lacks(config, "the link " + ToJson(wanted).dump() + " between two ranks");
    }
    AddLink(cost, link->profile);
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
  model.micro_steps = config.accumulation;
  model.cores_per_machine = units;
  model.ranks_per_machine = shared ? workers : 1;
  return model;
}

namespace {

// The durations of the first rank's mean step.
StepRecord MeanOfFirstRank(std::span<const ModelStep> window) {
  StepRecord mean;
  for (double StepRecord::*member :
       {&StepRecord::step_seconds, &StepRecord::forward_seconds, &StepRecord::backward_seconds,
        &StepRecord::sparsify_seconds, &StepRecord::exposed_communication_seconds,
        &StepRecord::decompress_seconds, &StepRecord::update_seconds, &StepRecord::outer_seconds}) {
    double sum = 0;
    for (const ModelStep& step : window) sum += step.records.front().*member;
    mean.*member = sum / static_cast<double>(window.size());
  }
  return mean;
}

StepModel ModelSome(const TrialConfig& trial, const ProfileOutcomes& profiles, bool all,
                    Recorded recorded, KnownLayout* layout) {
  const ModelConfig model = ConfigureModel(trial, profiles, layout);
  const auto every = static_cast<std::size_t>(trial.cell.method_options.window_steps());
  const std::vector<ModelStep> steps = SimulateCell(trial.cell, model, all, 0, recorded);
  std::vector<double> seconds, exposed, compute, utilisation;
  for (std::span<const ModelStep> left = steps; !left.empty(); left = left.subspan(every)) {
    const auto window = left.first(every);
    const StepRecord first = MeanOfFirstRank(window);
    seconds.push_back(StepSeconds(window));
    exposed.push_back(first.exposed_communication_seconds);
    compute.push_back(first.forward_seconds + first.backward_seconds + first.update_seconds);
    utilisation.push_back(compute.back() / first.step_seconds);
  }
  const auto first_window = std::span(steps).first(every);
  double sent = 0;
  for (const ModelStep& step : first_window)
    sent += static_cast<double>(step.records.front().sent_bytes);
  return {Median(seconds),
          Median(exposed),
          Median(compute),
          Median(utilisation),
          sent / static_cast<double>(every),
          FormulasOf(first_window)};
}

}  // namespace

StepModel ModelSteps(const TrialConfig& trial, const ProfileOutcomes& profiles, Recorded recorded,
                     KnownLayout* layout) {
  return ModelSome(trial, profiles, true, recorded, layout);
}

StepModel ModelUsualStep(const TrialConfig& trial, const ProfileOutcomes& profiles,
                         KnownLayout* layout) {
  return ModelSome(trial, profiles, false, Recorded::kTimes, layout);
}

namespace {

// Bytes a step are a mean over exchanges that have ended.
void RequireReceipts(std::span<const ModelStep> steps) {
  const auto receives = [](const ModelStep& step) { return step.records.front().exchanges > 0; };
  if (std::ranges::any_of(steps, receives)) return;
  SPARFUSE_THROW(kConfig,
                 fmt::format("trigger = \"idle\": an exchange takes longer than the {} modelled "
                             "steps, so no step receives one; expected steps for several exchanges",
                             steps.size()));
}

}  // namespace

int FirstModelledStep(const CellConfig& config, const ModelConfig& model) {
  return std::max(DenseWarmupSteps(config), model.sparse_collective->traits().begins_dense ? 1 : 0);
}

std::vector<ModelStep> SimulateCell(const CellConfig& config, const ModelConfig& model, bool all,
                                    int traced_ranks, Recorded recorded) {
  const bool idle = config.method_options.begins_when_idle();
  const bool varies = model.selection.sigma != 0 || model.sparse_collective->traits().periodic;
  const int every = config.method_options.window_steps();
  const int windows = idle || (all && varies) ? std::max(1, config.steps / every) : 1;
  if (config.method_options.has_local_steps()) {
    auto steps = SimulateSteps(model, 0, (1 + windows) * every, traced_ranks, recorded);
    steps.erase(steps.begin(), steps.begin() + every);
    if (idle) RequireReceipts(steps);
    return steps;
  }
  if (config.method_options.exchanges_beside_steps()) {  // the third step is like all others
    auto steps = SimulateSteps(model, 0, 2 + windows, traced_ranks, recorded);
    steps.erase(steps.begin(), steps.begin() + 2);
    return steps;
  }
  std::vector<ModelStep> steps;
  const int first =
      all ? FirstModelledStep(config, model) : static_cast<int>(Compose(config).usual_step());
  for (int step = 0; step < windows; ++step) {
    steps.push_back(
        SimulateStep(model, static_cast<std::uint64_t>(first + step), traced_ranks, recorded));
    if (step + 1 < windows) steps.back().spans.clear();
  }
  return steps;
}

Formulas FormulasOf(std::span<const ModelStep> window) {
  const StepRecord first = MeanOfFirstRank(window);
  double wire = 0;
  for (const ModelStep& step : window) wire += step.wire_seconds;
  return {first.forward_seconds + first.backward_seconds + first.update_seconds +
              first.sparsify_seconds + first.decompress_seconds + first.outer_seconds,
          wire / static_cast<double>(window.size())};
}

double StepSeconds(std::span<const ModelStep> window) {
  double longest = 0;
  for (std::size_t rank = 0; rank < window.front().records.size(); ++rank) {
    double sum = 0;
    for (const ModelStep& step : window) sum += step.records[rank].step_seconds;
    longest = std::max(longest, sum);
  }
  return longest / static_cast<double>(window.size());
}

double UsualStepSeconds(const CellConfig& config, const ModelConfig& model) {
  return StepSeconds(SimulateCell(config, model, false, 0, Recorded::kTimes));
}

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
