#include "harness/clusters/cluster_calibration.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "baselines/composition.hpp"
#include "core/engine/model/model_engine.hpp"
#include "harness/clusters/profile_data.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::uint64_t kCalibrationSeed = 1;  // of the selections' counts

// x and y of a[0] x + a[1] y = p, b[0] x + b[1] y = q.
std::array<double, 2> SolvePair(std::array<double, 2> a, std::array<double, 2> b, double p,
                                double q) {
  const double determinant = a[0] * b[1] - a[1] * b[0];
  return {(p * b[1] - q * a[1]) / determinant, (a[0] * q - b[0] * p) / determinant};
}

StepRecord ModelBar(const DeclaredCluster& cluster, const ReferenceWorkload& reference) {
  CellConfig config;
  config.workload = reference.workload;
  config.batch_per_worker = reference.batch_per_worker;
  config.workers = reference.workers;
  config.cluster = cluster.name;
  const json profile = DeclaredProfile(cluster, config);
  MethodParts parts;  // layer-wise: what the paper calls WFBP
  parts.strategy = "ahead";
  parts.planner = "layer-wise";
  parts.collective = "sparse-allgather";
  parts.sparsifier = &FindSparsifier(kCalibrationSparsifier);
  parts.sparsifier_options = ResolveOptions(kCalibrationSparsifier, parts.sparsifier->options, {});
  parts.density = kCalibrationDensity;
  parts.feedback = "residual";
  const json& times = profile.front().at("profile");
  GradientLayout layout = MakeLayout(TensorsOf(times), {}, "workload " + reference.workload);
  BackwardProfile backward = BackwardOf(times, layout);
  CostModel cost = KernelCosts(times);
  AddDeclaredLinks(cost, times);
  const ModelConfig model = MakeModelConfig(Compose(parts), std::move(layout),
                                            {reference.workers, cluster.ranks_per_node},
                                            std::move(backward), std::move(cost), kCalibrationSeed);
  return SimulateStep(model, 0, 0).records.front();
}

// once * tensors + each * elements = sparsification, of both bars.
void SolveSelection(DeclaredCluster& cluster) {
  const auto row = [&](std::size_t bar) {
    const workloads::LayerTable& layers = workloads::LayersOf(cluster.references[bar].workload);
    return std::array{static_cast<double>(layers.tensors.size()),
                      static_cast<double>(layers.numel())};
  };
  const auto [once, each] = SolvePair(row(0), row(1), cluster.references[0].sparsify_seconds,
                                      cluster.references[1].sparsify_seconds);
  if (!(once >= 0) || !(each > 0)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("the bars' sparsification gives {} s a tensor and {} s an element: "
                               "expected times of at least 0",
                               once, each));
  }
  cluster.selection_seconds_once = once;
  cluster.selection_seconds_each = each;
}

// Regula falsi, Illinois form: exposed communication bends where exchanges begin to wait for one
// another, and grows by at most one overhead an exchange.
void SolveHostOverhead(const DeclaredCluster& cluster, ReferenceWorkload& reference) {
  const auto error = [&](double overhead) {
    reference.host_seconds = overhead;
    const StepRecord record = ModelBar(cluster, reference);
    return record.exposed_communication_seconds + record.decompress_seconds -
           reference.exposed_seconds;
  };
  double low = 0, high = reference.exposed_seconds;
  double below = error(low), above = error(high);
  if (below > 0 || above < 0) {
    SPARFUSE_THROW(
        kConfig, fmt::format("{}: a modelled step exposes {:.4g} ms more than the bar without any "
                             "host overhead, {:.4g} ms more with the whole bar an exchange: "
                             "expected the bar in between",
                             reference.bar.name(), below * 1e3, above * 1e3));
  }
  constexpr int kMostSteps = 100;
  constexpr double kTolerance = 1e-6;
  bool last_was_high = false;
  for (int step = 0; step < kMostSteps; ++step) {
    const double middle = (low * above - high * below) / (above - below);
    const double now = error(middle);
    if (std::abs(now) < kTolerance * reference.exposed_seconds) return;
    const bool is_high = now > 0;
    (is_high ? high : low) = middle;
    (is_high ? above : below) = now;
    if (step > 0 && is_high == last_was_high) (is_high ? below : above) /= 2;
    last_was_high = is_high;
  }
  SPARFUSE_THROW(kConfig, reference.bar.name() + ": no host overhead reproduces the bar");
}

}  // namespace

void CalibrateOnBars(DeclaredCluster& cluster) {
  SolveSelection(cluster);
  for (ReferenceWorkload& reference : cluster.references) SolveHostOverhead(cluster, reference);
}

}  // namespace sparfuse::harness
