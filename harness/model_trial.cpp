#include "harness/model_trial.hpp"

#include <algorithm>
#include <functional>

#include "core/engine/model_engine.hpp"
#include "harness/composition.hpp"
#include "harness/step_log.hpp"
#include "workloads/catalog.hpp"

namespace sparfuse {
namespace {

using nlohmann::json;

constexpr int kTracedRanks = 4;

PiecewiseLinear CurveOf(const json& points) {
  std::vector<std::pair<double, double>> pairs;
  for (const json& point : points)
    pairs.emplace_back(point[0].get<double>(), point[1].get<double>());
  return PiecewiseLinear(std::move(pairs));
}

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

BackwardProfile BackwardOf(const json& measured) {
  BackwardProfile profile;
  profile.begin_seconds = measured.at("begin_seconds");
  profile.forward_seconds = measured.at("forward_seconds");
  profile.tail_seconds = measured.at("tail_seconds");
  profile.update_seconds = measured.at("update_seconds");
  for (const json& tensor : measured.at("tensors"))
    profile.backward_seconds.push_back(tensor.at("seconds"));
  return profile;
}

CostModel KernelCosts(const json& profile) {
  CostModel cost;
  cost.pack_seconds = CurveOf(profile.at("pack"));
  cost.scale_seconds = CurveOf(profile.at("scale"));
  cost.clear_seconds = CurveOf(profile.at("clear"));
  cost.seconds_per_entry = profile.at("seconds_per_entry");
  cost.seconds_per_reduced_element = profile.at("seconds_per_reduced_element");
  cost.dispatch_seconds = profile.at("dispatch_seconds");
  cost.exchange_dispatch_seconds = profile.at("exchange_dispatch_seconds");
  for (const auto& [name, curves] : profile.at("selection").items()) {
    for (const json& curve : curves)
      cost.selection[name].Add(curve.at("density"), CurveOf(curve.at("seconds")));
  }
  return cost;
}

void AddLink(CostModel& cost, const json& profile) {
  LinkCost link;
  link.round_seconds = CurveOf(profile.at("link").at("round_seconds"));
  link.seconds_per_extra_message = profile.at("link").at("seconds_per_extra_message");
  cost.links.fill(link);
  cost.exchange_cpu_seconds = profile.at("link").at("cpu_seconds");
  cost.round_cpu_seconds = profile.at("link").at("round_cpu_seconds");
  cost.exchange_cpu_fraction = profile.at("link").at("cpu_fraction");
  if (profile.contains("native_all_reduce")) {
    cost.native_all_reduce_seconds = CurveOf(profile.at("native_all_reduce"));
  }
}

[[noreturn]] void Lacks(const json& config, const std::string& what) {
  SPARFUSE_THROW(kConfig, "cluster " + config.at("cluster").dump() + ": its profile lacks " + what +
                              "; measure it with sparfuse profile");
}

ModelConfig Configure(const json& config, const json& profiles) {
  const int workers = config.at("workers");
  const int threads = config.at("threads_per_worker");
  const bool shared = config.at("cluster") == "this-machine";
  if (profiles.empty()) Lacks(config, "every measurement");
  const int cores = profiles.front().at("machine").at("cores");
  const int units = std::max(1, cores / threads);  // ranks that this machine runs side by side

  const json* compute = NearestBelow(profiles, shared ? std::min(workers, units) : 1,
                                     [](const json&) { return true; });
  if (compute == nullptr) Lacks(config, "a backward pass with one rank on the machine");
  ModelConfig model;
  model.cost = KernelCosts(compute->at("profile"));
  model.backward = BackwardOf(compute->at("profile").at("backward"));
  if (workers > 1) {
    const json* link = NearestBelow(profiles, shared ? workers : 2, [&](const json& outcome) {
      return RanksOf(outcome) > 1 && outcome.at("config").at("link") == config.at("link");
    });
    if (link == nullptr)
      Lacks(config, "the link " + config.at("link").dump() + " between two ranks");
    AddLink(model.cost, link->at("profile"));
  }

  std::vector<TensorShape> tensors;
  for (const json& tensor : compute->at("profile").at("backward").at("tensors")) {
    tensors.push_back({tensor.at("name"), tensor.at("shape"), tensor.at("numel")});
  }
  const Composition composition = Compose(config);
  model.topology = {workers, config.at("ranks_per_node").get<int>()};
  model.layout = MakeLayout(tensors, config);
  model.plan = MakePlan(composition, model.layout, model.topology, &model.backward, &model.cost);
  model.make_strategy = [composition] { return composition.MakeStrategy(); };
  model.dense_collective = composition.dense_collective;
  model.sparse_collective = composition.sparse_collective;
  model.coding = composition.coding;
  if (composition.sparsifier != nullptr) {
    model.sparsifier = composition.sparsifier->name;
    model.selector = composition.sparsifier->make(composition.sparsifier_options, 0);
    model.selection = composition.sparsifier->selection_model;
    model.index_shared = composition.sparsifier->index_shared;
    model.unbounded_count = composition.sparsifier->unbounded_count;
  }
  model.cores_per_machine = units;
  model.ranks_per_machine = shared ? workers : 1;
  model.seed = config.at("seed");
  return model;
}

}  // namespace

json RunModelledTrial(const json& config, const json& profiles,
                      const std::filesystem::path& directory) {
  const ModelConfig model = [&] {
    try {
      return Configure(config, profiles);
    } catch (const json::exception& error) {
      SPARFUSE_THROW(kData, "cluster " + config.at("cluster").dump() +
                                ": its profile is damaged: " + error.what());
    }
  }();
  const WorkloadDescriptor& workload = FindWorkload(config.at("workload").get<std::string>());
  const int ranks = model.topology.ranks;
  const bool random = model.selection.sigma != 0;  // else every step is like the first
  const int steps = random ? config.at("steps").get<int>() : 1;

  StepLog log(static_cast<std::size_t>(ranks));
  std::vector<TracedStep> traced;
  for (int step = 0; step < steps; ++step) {
    ModelStep simulated =
        SimulateStep(model, static_cast<std::uint64_t>(step), std::min(ranks, kTracedRanks));
    for (std::size_t r = 0; r < log.size(); ++r)
      log[r].push_back({step, true, 0, simulated.records[r]});
    if (step + 1 < steps) continue;
    simulated.spans.resize(static_cast<std::size_t>(std::min(ranks, kTracedRanks)));
    traced.push_back({step, std::move(simulated.spans)});
  }

  StepLogContext context;
  context.dense_elements = static_cast<double>(model.layout.numel());
  context.units_per_step =
      static_cast<double>(ranks) * config.at("batch_per_worker").get<double>() *
      config.at("accumulation").get<double>() * static_cast<double>(workload.units_per_sample);
  context.unit = workload.unit;
  context.counts_missing = false;
  WriteSteps(directory, log, context);
  WriteSpans(directory, traced);

  json layout = json::array();
  for (std::size_t t = 0; t < model.layout.tensors(); ++t) {
    const TensorEntry& tensor = model.layout.tensor(t);
    layout.push_back({{"name", tensor.name},
                      {"shape", tensor.shape},
                      {"numel", tensor.numel},
                      {"dense", tensor.dense}});
  }
  return {{"status", "ok"},
          {"reason", ""},
          {"metrics", MetricsOf(log, context)},
          {"checks", json::object()},
          {"plan", model.plan.UnitSizes()},
          {"layout", std::move(layout)},
          {"machine", profiles.front().at("machine")},
          {"software", profiles.front().at("software")},
          {"sampling", "simulated; spans of the first ranks"}};
}

}  // namespace sparfuse
