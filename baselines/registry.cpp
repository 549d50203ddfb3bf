// Holds the explicit tables of strategies, planners and collectives: core's entries, then a line
// for each baseline's own.
#include "baselines/registry.hpp"

#include <string>
#include <vector>

#include "baselines/arc-topk/arc_topk.hpp"
#include "baselines/cupcake/cupcake.hpp"
#include "baselines/demo/demo.hpp"
#include "baselines/espresso/espresso_paths.hpp"
#include "baselines/espresso/espresso_planner.hpp"
#include "baselines/gtopk/gtopk.hpp"
#include "baselines/hipress/casync_ring.hpp"
#include "baselines/hipress/secopa.hpp"
#include "baselines/horovod-fusion/horovod_cycle.hpp"
#include "baselines/mg-wfbp/mg_wfbp.hpp"
#include "baselines/oktopk/oktopk.hpp"
#include "baselines/omgs/omgs.hpp"
#include "baselines/omnireduce/omnireduce.hpp"
#include "baselines/powersgd/powersgd.hpp"
#include "baselines/scape/scape.hpp"
#include "baselines/sparcml/sparcml.hpp"
#include "baselines/spardl/spardl.hpp"
#include "baselines/zen/zen.hpp"
#include "core/adtopk/planner.hpp"
#include "core/base/outside_parts.hpp"
#include "core/localsteps/local_steps.hpp"
#include "core/safusion/planner.hpp"
#include "core/ssfusion/planner.hpp"

namespace sparfuse {
namespace {

template <class Descriptor>
const Descriptor& Find(std::span<const Descriptor> table, std::string_view kind,
                       std::string_view name) {
  if (const auto* outside = OutsideParts<Descriptor>::Find(name)) return *outside;
  std::vector<std::string> known;
  for (const auto& entry : table) {
    if (entry.name == name) return entry;
    known.emplace_back(entry.name);
  }
  SPARFUSE_THROW(kConfig, "unknown " + std::string(kind) + " \"" + std::string(name) + "\"" +
                              Suggestion(name, known));
}

}  // namespace

std::span<const StrategyDescriptor> Strategies() {
  static const std::vector<StrategyDescriptor> kTable = [] {
    std::vector<StrategyDescriptor> table(CoreStrategies().begin(), CoreStrategies().end());
    table.push_back(kLocalSteps);
    table.push_back(kSparseLocalSteps);
    table.push_back(kDelayedGradients);
    table.push_back(kSafusionNaive);
    table.push_back(baselines::kHorovodCycle);
    table.push_back(baselines::kEspressoPaths);
    return table;
  }();
  return kTable;
}

std::span<const PlannerDescriptor> Planners() {
  static const std::vector<PlannerDescriptor> kTable = [] {
    std::vector<PlannerDescriptor> table(CorePlanners().begin(), CorePlanners().end());
    table.push_back(kSafusionPlanner);
    table.push_back(kSsfusionPlanner);
    table.push_back(kAdtopkPlanner);
    table.push_back(baselines::kMgWfbpPlanner);
    table.push_back(baselines::kOmgsPlanner);
    table.push_back(baselines::kCupcakePlanner);
    table.push_back(baselines::kSecopaPlanner);
    table.push_back(baselines::kEspressoPlanner);
    return table;
  }();
  return kTable;
}

std::span<const CollectiveDescriptor> Collectives() {
  static const std::vector<CollectiveDescriptor> kTable = [] {
    std::vector<CollectiveDescriptor> table(CoreCollectives().begin(), CoreCollectives().end());
    table.push_back(baselines::PowerSgdFactors());
    table.push_back(baselines::PowerSgdBlocks());
    table.push_back(baselines::DemoCoefficients());
    table.push_back(baselines::ArcRows());
    table.push_back(baselines::MomentMask());
    table.push_back(baselines::SpardlCollective());
    table.push_back(baselines::GtopkCollective());
    table.push_back(baselines::SparcmlRecursiveDoubling());
    table.push_back(baselines::SparcmlSplitAllgather());
    table.push_back(baselines::OkTopkCollective());
    table.push_back(baselines::OmniReduceCollective());
    table.push_back(baselines::ZenCollective());
    table.push_back(baselines::CasyncRing());
    return table;
  }();
  return kTable;
}

const StrategyDescriptor& FindStrategy(std::string_view name) {
  return Find(Strategies(), "strategy", name);
}
const PlannerDescriptor& FindPlanner(std::string_view name) {
  return Find(Planners(), "planner", name);
}
const CollectiveDescriptor& FindCollective(std::string_view name) {
  return Find(Collectives(), "collective", name);
}

}  // namespace sparfuse
