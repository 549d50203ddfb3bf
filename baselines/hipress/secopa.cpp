#include "baselines/hipress/secopa.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.hpp"

namespace sparfuse::baselines {
namespace {

constexpr double kCompressed = 1.0 / 16;

// Milliseconds of one operation on x elements.
struct Line {
  double per_element, bias;
  double over;  // ms, for few elements

  double operator()(double x) const {
    const double few = per_element > 0 ? std::max(0.0, (over - bias) / per_element) : 0;
    return x < few ? over : per_element * x + bias;
  }
};

constexpr Line kEncode{1.4133e-8, 5.8938e-2, 0.05408};
constexpr Line kDecode{6.2041e-9, 1.3956e-1, 0.07287};
constexpr Line kMerge{0, 0, 0};
constexpr Line kRingSend{8.5005e-7, 2.0337e-1, 0.09766};

struct ServerLines {
  int nodes;
  Line gather, broadcast;
};
constexpr ServerLines kServers[] = {
    {4, {2.7156e-6, 0.41930, 0.15573}, {2.7157e-6, 0.22156, 0.14820}},
    {8, {6.1167e-6, 0.80768, 0.28778}, {6.1172e-6, 0.27285, 0.29666}},
    {16, {1.2937e-5, 1.4406, 0.59503}, {1.2915e-5, 0.45538, 0.58353}}};

// Estimated milliseconds of a tensor in k partitions.
double Milliseconds(SecopaTopology topology, const ServerLines& servers, double elements,
                    bool compress, int k) {
  const double part = elements / k;
  const double sent = compress ? part * kCompressed : part;
  const int nodes = servers.nodes, others = nodes - 1;
  double encodes = 0, decodes = 0, took = 0;
  if (topology == SecopaTopology::kServers) {
    took = servers.gather(sent) + servers.broadcast(sent);
    encodes = std::min(k + 1, nodes);
    decodes = std::min(others + k, 2 * others);
  } else {
    took = 2 * others * kRingSend(sent);
    encodes = decodes = nodes;
  }
  // Follows the published order of operations, since the last bit decides between equal times.
  if (compress) took = took + encodes * kEncode(part) + decodes * kDecode(sent);
  return took + others * kMerge(part);
}

constexpr std::string_view kHipress = "hipress";

// Returns the nearest number of nodes that has constants; the smaller one of two equally near.
int NearestNodes(int ranks) {
  constexpr int kKnown[] = {4, 8, 16};
  return *std::ranges::min_element(kKnown, {}, [&](int nodes) {
    return std::abs(std::log2(static_cast<double>(nodes) / ranks));
  });
}

class Secopa final : public Planner {
 public:
  Secopa(std::size_t compress_from, int partitions, SecopaTopology topology)
      : compress_from_(compress_from), partitions_(partitions), topology_(topology) {}

  Plan MakePlan(const PlanInput& input) const override {
    Plan plan;
    for (std::size_t t = 0; t < input.layout.tensors(); ++t) {
      const std::size_t elements = input.layout.tensor(t).numel;
      SecopaDecision how = SecopaDecide(topology_, NearestNodes(input.topology.ranks), elements);
      if (compress_from_ > 0) how.compress = elements >= compress_from_;
      if (partitions_ > 0) how.partitions = partitions_;
      if (topology_ == SecopaTopology::kRing) how.partitions = input.topology.ranks;
      Unit unit{t, t + 1};
      if (how.compress && input.sparsified == Sparsified::kBehind) {
        unit.sparsified = Sparsified::kBehind;
        unit.density = input.density;
        unit.partitions =
            static_cast<std::uint16_t>(std::min(how.partitions, input.topology.ranks));
      }
      plan.units.push_back(unit);
    }
    return plan;
  }

 private:
  std::size_t compress_from_;  // elements; 0: SeCoPa decides
  int partitions_;             // 0: SeCoPa decides
  SecopaTopology topology_;
};

}  // namespace

SecopaDecision SecopaDecide(SecopaTopology topology, int nodes, std::size_t elements) {
  const auto* const servers = std::ranges::find(kServers, nodes, &ServerLines::nodes);
  SPARFUSE_REQUIRE(servers != std::end(kServers),
                   "hipress: world_size = " + std::to_string(nodes) +
                       ": expected 4, 8 or 16, for which there are published constants");
  const auto best = [&](bool compress) {
    std::pair least(0.0, 0);
    for (int k = 1; k <= nodes; ++k) {
      const double took =
          Milliseconds(topology, *servers, static_cast<double>(elements), compress, k);
      if (k == 1 || took < least.first) least = {took, k};
    }
    return least;
  };
  const auto whole = best(false), compressed = best(true);
  if (whole.first > compressed.first) return {true, compressed.second};
  return {false, whole.second};
}

const PlannerDescriptor kSecopaPlanner = {
    .name = kHipress,
    .summary =
        "each tensor in a unit of its own, whole or compressed, in the number of partitions that "
        "takes least time by the published constants",
    .source = "Bai et al., HiPress, SOSP 2021",
    .revision = 1,
    .options =
        {NumberOption("compress_from", 0.0, 0, 1e12,
                      "elements from which a tensor is compressed; 0: if SeCoPa says that it pays"),
         WholeOption(
             "partitions", 0, 0, 1024,
             "partitions of a compressed tensor, at most as many as ranks; 0: as SeCoPa says"),
         ChoiceOption("topology", "servers", {"servers", "ring"},
                      "how partitions are summed: on the ranks that own them, or around a ring, "
                      "which has as many partitions as ranks")},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      const auto partitions = static_cast<int>(IntOption(options, "partitions"));
      const bool ring = StringOption(options, "topology") == "ring";
      SPARFUSE_REQUIRE(!ring || partitions == 0,
                       "partitions = " + std::to_string(partitions) +
                           " with topology \"ring\", which has as many partitions as ranks: "
                           "expected 0, or topology \"servers\"");
      return std::make_unique<Secopa>(
          static_cast<std::size_t>(DoubleOption(options, "compress_from")), partitions,
          ring ? SecopaTopology::kRing : SecopaTopology::kServers);
    },
    .deviations =
        "On numbers of ranks other than 4, 8 and 16 the constants of the nearest of these decide; "
        "around a ring they decide only whether a tensor is compressed. SeCoPa's node is a rank "
        "here, on whichever node. Its partitions of tensors that are not compressed are left out: "
        "these tensors are all-reduced whole."};

}  // namespace sparfuse::baselines
