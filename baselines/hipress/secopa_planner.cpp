#include "baselines/hipress/secopa_planner.hpp"

#include <algorithm>
#include <cmath>

#include "baselines/hipress/secopa.hpp"
#include "core/base/error.hpp"

namespace sparfuse::baselines {
namespace {

constexpr std::string_view kName = "hipress";

// Of those that there are constants for; the fewer of two that are as near.
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
  std::string_view name() const noexcept override { return kName; }

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

const PlannerDescriptor kSecopaPlanner = {
    .name = kName,
    .summary =
        "each tensor by itself, whole or compressed, in as many partitions as take least by "
        "the published constants",
    .source = "Bai et al., HiPress, SOSP 2021",
    .revision = 1,
    .options = {{"compress_from",
                 0.0,
                 0,
                 1e12,
                 {},
                 "elements from which a tensor is compressed; 0: where SeCoPa says that it pays"},
                {"partitions",
                 std::int64_t{0},
                 0,
                 1024,
                 {},
                 "of a tensor that is compressed, at most as many as ranks; 0: as SeCoPa says"},
                {"topology",
                 std::string("servers"),
                 0,
                 0,
                 {"servers", "ring"},
                 "how parts are summed: on the ranks that own them, or around a ring, on which "
                 "there are as many as ranks"}},
    .make = [](const Options& options) -> std::unique_ptr<Planner> {
      const auto partitions = static_cast<int>(IntOption(options, "partitions"));
      const bool ring = StringOption(options, "topology") == "ring";
      SPARFUSE_REQUIRE(!ring || partitions == 0,
                       "partitions = " + std::to_string(partitions) +
                           " with topology \"ring\", around which there are as many as ranks: "
                           "expected 0, or topology \"servers\"");
      return std::make_unique<Secopa>(
          static_cast<std::size_t>(DoubleOption(options, "compress_from")), partitions,
          ring ? SecopaTopology::kRing : SecopaTopology::kServers);
    },
    .deviations =
        "On other numbers of ranks than 4, 8 and 16 the constants of the nearest of them "
        "decide; around a ring, for whether a tensor is compressed alone. What SeCoPa calls a "
        "node is a rank here, on whichever node. The partitions that it says of tensors that are "
        "not compressed are left out: those are all-reduced whole."};

}  // namespace sparfuse::baselines
