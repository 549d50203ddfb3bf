#include "harness/clusters/implied_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/clusters/cluster_calibration.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {
namespace {

constexpr double kGradientBytes = 4;
constexpr double kGbps = 1e9 / 8;  // bytes a second

bool SendsDense(const ReferenceStep& step) {
  return step.sparsifier == "none" && step.method_options.collective == "ring-allreduce";
}

}  // namespace

RateBounds RateBoundsOf(std::string_view workload, int ranks, int nodes, double exposed_seconds,
                        double longest_seconds) {
  const double gradients =
      kGradientBytes * static_cast<double>(workloads::LayersOf(workload).numel());
  const auto sent = [&](double count) { return 2 * (count - 1) / count * gradients; };
  RateBounds rate;
  rate.least_bytes = sent(nodes);
  rate.most_bytes = sent(ranks);
  rate.least = rate.least_bytes / longest_seconds / kGbps;
  rate.most = exposed_seconds > 0 ? rate.most_bytes / exposed_seconds / kGbps
                                  : std::numeric_limits<double>::infinity();
  return rate;
}

std::optional<ImpliedRate> ImpliedRateOf(const DeclaredCluster& cluster,
                                         const ReferenceStep& step) {
  if (step.workers <= cluster.ranks_per_node || step.part == StepPart::kSparsify ||
      !SendsDense(step)) {
    return std::nullopt;
  }
  const ProfileOutcomes outcomes = DeclaredProfile(cluster, CellOf(cluster, step));
  const Profile& profile = outcomes.front().profile;
  const BackwardTimes& compute = *profile.backward;
  const double backward = compute.backward_seconds();
  double exposed = step.seconds;
  if (step.part == StepPart::kStep)
    exposed -= compute.forward_seconds + backward + compute.update_seconds;
  const int nodes = (step.workers + cluster.ranks_per_node - 1) / cluster.ranks_per_node;
  ImpliedRate rate;
  static_cast<RateBounds&>(rate) =
      RateBoundsOf(step.workload, step.workers, nodes, exposed, std::max(exposed, 0.0) + backward);
  rate.nominal = (step.link ? step.link->gbps : cluster.Value("inter_node_gbps")) *
                 cluster.Value("network_cards");
  const auto delivered = [&](const char* link) {
    return 1 / profile.links.at(link).seconds_per_byte / kGbps;
  };
  rate.delivered = delivered("inter_node");
  if (cluster.ranks_per_node > 1)
    rate.delivered = std::min(rate.delivered, delivered("intra_node"));
  return rate;
}

std::string RateConflict(const DeclaredCluster& cluster, const ReferenceStep& step) {
  const auto rate = ImpliedRateOf(cluster, step);
  if (!rate) return "";
  const std::string of = fmt::format("{} of {} with {} on {} workers",
                                     step.part == StepPart::kStep ? "a step" : "what is exposed",
                                     step.workload, step.method, step.workers);
  constexpr double kTooMuch = 1.05, kTooLittle = 0.5;
  if (rate->least > kTooMuch * rate->nominal) {
    return fmt::format(
        "{} sends {:.4g} MB or more out of a node: with all of backward to hide in that is {:.4g} "
        "Gbit/s, and the nominal rate is {:g} (inter_node_gbps, network_cards): the network is "
        "faster than declared, or the time is of another step",
        of, 1e-6 * rate->least_bytes, rate->least, rate->nominal);
  }
  if (rate->most < kTooLittle * rate->delivered) {
    return fmt::format(
        "{} sends {:.4g} MB out of a node by a ring: in what it exposes that is {:.4g} Gbit/s at "
        "most, and {:.4g} are declared as delivered ({:g} nominal): the network is slower than its "
        "label, or the host takes the time (exchange_host_*)",
        of, 1e-6 * rate->most_bytes, rate->most, rate->delivered, rate->nominal);
  }
  return "";
}

}  // namespace sparfuse::harness
