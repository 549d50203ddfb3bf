#include "harness/compare/modelled/forced_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"
#include "harness/catalog/fusion_plan.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/compare/modelled/transport.hpp"
#include "harness/compare/plan_difference.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Tensors of the trial, in its ready order.
std::vector<TensorShape> TensorsIn(const json& outcome) {
  std::vector<TensorShape> tensors;
  for (const json& each : outcome.value("layout", json::array()))
    tensors.push_back({each.at("name"), each.at("shape"), each.at("numel")});
  return tensors;
}

// "2 of its tensors are offloaded and none would be": what a plan says beside its units.
std::string WhatIsMore(const json& plan, const json& given) {
  std::vector<std::string> found;
  for (const auto& [key, what] : {std::pair("dense_units", "units sent dense"),
                                  {"side_units", "units selected from beside backward"}}) {
    if (plan.value(key, json::array()) != given.value(key, json::array()))
      found.push_back(fmt::format("{} {}", plan.value(key, json::array()).size(), what));
  }
  if (plan.contains("partitions") && !given.contains("partitions")) {
    const json& parts = plan["partitions"];
    found.push_back(fmt::format(
        "{} units in several parts",
        std::count_if(parts.begin(), parts.end(), [](const json& each) { return each > 1; })));
  }
  if (plan.contains("paths") && !given.contains("paths")) {
    found.push_back(fmt::format("the ways of {} units", plan["paths"].size()));
  }
  const json tensors = plan.value("tensors", json::object());
  for (const char* key : {"dense", "offloaded", "reduced"}) {
    if (tensors.value(key, 0) != given.at("tensors").value(key, 0))
      found.push_back(fmt::format("{} tensors {}", tensors.value(key, 0), key));
  }
  return fmt::format("{}", fmt::join(found, ", "));
}

struct MeasuredCells {
  const SideCell* cell = nullptr;
  const SideCell* reference = nullptr;
  const SideCell* own = nullptr;  // with the plan of the side's planner; null where it was not run
};

class Forcer {
 public:
  Forcer(SystemComparison& comparison, const std::vector<SystemSide>& sides, std::size_t giver,
         DisturbedTrials disturbed, const std::vector<std::unique_ptr<ModelledSide>>& models)
      : comparison_(comparison), sides_(sides), giver_(giver), models_(models) {
    for (const SystemSide& side : sides) cells_.push_back(CellsOf(side, disturbed));
  }

  void Run() {
    for (ComparedPart& part : comparison_.parts) {
      for (ComparedCell& cell : part.cells) {
        cell.forced.assign(sides_.size(), {});
        const json given = OutcomeOf(giver_, cell.key);
        for (std::size_t side = 0; side < sides_.size(); ++side)
          cell.forced[side] = Forced(cell, part.settings[cell.setting], given, side);
      }
    }
  }

 private:
  // Outcome of the newest trial that counts; null where there is none.
  json OutcomeOf(std::size_t side, const CellKey& key) const {
    const auto found = cells_[side].find(key);
    if (found == cells_[side].end() || found->second.newest == nullptr) return nullptr;
    return sides_[side].outcome(*found->second.newest);
  }

  ForcedPlan Forced(const ComparedCell& cell, const ComparedSetting& setting, const json& given,
                    std::size_t side) const {
    ForcedPlan forced;
    const json here = OutcomeOf(side, cell.key);
    try {
      forced.own =
          side == giver_ || (!LastPlan(here).is_null() && LastPlan(here) == LastPlan(given));
      if (given.is_null())
        SPARFUSE_THROW(kConfig, fmt::format("{} did not run it", sides_[giver_].name));
      const CellConfig with_plan = WithPlanOf(CellConfigOf(cell.config), given);
      forced.units = StringOption(with_plan.method_options.planner_options, "units");
      forced.config_hash = ConfigHash(with_plan);
      if (forced.own) return forced;
      CheckReadyOrder(given, here, side);
      Measure(cell, side, forced);
      Model(cell, setting, with_plan, here, side, forced);
    } catch (const Error& error) {
      if (error.kind() != FailureKind::kConfig) throw;
      if (!forced.own) forced.lacks = error.what();
    }
    return forced;
  }

  // Units of as many tensors are other units where tensors become ready in another order.
  void CheckReadyOrder(const json& given, const json& here, std::size_t side) const {
    if (here.is_null()) return;
    const std::vector<TensorShape> theirs = TensorsIn(given), ours = TensorsIn(here);
    for (std::size_t t = 0; t < std::min(theirs.size(), ours.size()); ++t) {
      if (theirs[t].name == ours[t].name) continue;
      SPARFUSE_THROW(
          kConfig,
          fmt::format("tensors become ready in another order: number {} is {} on {} and "
                      "{} on {}",
                      t + 1, theirs[t].name, sides_[giver_].name, ours[t].name, sides_[side].name));
    }
  }

  // The trials with the plan, of the experiment and part that have the most blocks of them.
  MeasuredCells MeasuredOf(const ComparedCell& cell, const std::string& config_hash,
                           std::size_t side) const {
    MeasuredCells found;
    if (cell.reference_config.is_null()) return found;
    const std::string reference_hash = ConfigHash(cell.reference_config);
    for (const auto& [key, with_plan] : cells_[side]) {
      if (key.config_hash != config_hash || with_plan.newest == nullptr) continue;
      const auto reference = cells_[side].find({key.experiment, key.part, reference_hash});
      if (reference == cells_[side].end() || reference->second.newest == nullptr ||
          !PartOfTwoRevisions(*with_plan.newest, *reference->second.newest).empty())
        continue;
      if (found.cell != nullptr && found.cell->result.blocks() >= with_plan.result.blocks())
        continue;
      const auto own = cells_[side].find({key.experiment, key.part, cell.key.config_hash});
      const bool has_own = own != cells_[side].end() && own->second.newest != nullptr &&
                           PartOfTwoRevisions(*with_plan.newest, *own->second.newest).empty();
      found = {&with_plan, &reference->second, has_own ? &own->second : nullptr};
    }
    return found;
  }

  void Measure(const ComparedCell& cell, std::size_t side, ForcedPlan& forced) const {
    const MeasuredCells trials = MeasuredOf(cell, forced.config_hash, side);
    if (trials.cell == nullptr) return;
    forced.measured = harness::RatioOf(trials.cell->result, trials.reference->result, cell.metric);
    if (!forced.measured) return;
    const SideValue& giver = cell.sides[giver_];
    const auto ratios =
        OfBlocks(RatiosByBlock(trials.cell->result, trials.reference->result, cell.metric));
    if (!giver.ratios.empty()) {
      forced.rest = ContrastOf(giver.ratios, ratios, kSameWithin).ratio;
      forced.rest_measured = true;
    }
    if (trials.own != nullptr)
      forced.gain = harness::RatioOf(trials.cell->result, trials.own->result, cell.metric);
    forced.gain_measured = forced.gain.has_value();
  }

  void Model(const ComparedCell& cell, const ComparedSetting& setting, const CellConfig& with_plan,
             const json& here, std::size_t side, ForcedPlan& forced) const {
    if (models_.empty()) return;
    CellConfig own = CellConfigOf(cell.config);
    try {  // the plan that the side made, rather than what the model would plan for it
      if (!here.is_null()) own = WithPlanOf(own, here);
    } catch (const Error& error) {
      if (error.kind() != FailureKind::kConfig) throw;
    }
    Interval gain;
    try {
      gain = models_[side]->RatioOf(with_plan, own, cell.metric, HostsOf(setting, side)).Band();
    } catch (const Error& error) {
      if (error.kind() != FailureKind::kConfig) throw;
      forced.lacks_modelled = error.what();
      return;
    }
    const SideValue& value = cell.sides[side];
    if (!forced.gain_measured) forced.gain = gain;
    if (!value.lacks.empty()) return;
    forced.modelled = Product(*value.ratio, gain);
    const SideValue& giver = cell.sides[giver_];
    if (forced.rest_measured || !giver.lacks.empty()) return;
    const Contrast contrast = ContrastOf(giver.ratios, value.ratios, kSameWithin);
    forced.rest = Product(contrast.ratio, Inverse(gain));
  }

  SystemComparison& comparison_;
  const std::vector<SystemSide>& sides_;
  std::size_t giver_;
  const std::vector<std::unique_ptr<ModelledSide>>& models_;
  std::vector<std::map<CellKey, SideCell>> cells_;  // one map a side
};

}  // namespace

CellConfig WithPlanOf(const CellConfig& cell, const json& outcome) {
  const json plan = LastPlan(outcome);
  const std::vector<TensorShape> tensors =
      outcome.is_object() ? TensorsIn(outcome) : std::vector<TensorShape>();
  if (plan.is_null() || tensors.empty() || !plan.contains("unit_sizes"))
    SPARFUSE_THROW(kConfig, "its trial says neither plan nor tensors");
  CellConfig with_plan = cell;
  MethodChoice& method = with_plan.method_options;
  method.planner = kGivenPlanner;
  method.planner_options = ResolveOptions("planner given", GivenPlanner().options,
                                          {{"units", plan["unit_sizes"].get<std::string>()}});
  method.sending["replan_every"] = std::int64_t{0};
  method.sending["dense_fallback"] = false;
  const Composition composition = Compose(with_plan);
  const GradientLayout layout = MakeLayout(tensors, with_plan);
  const json given = PlanSummary(
      MakePlan(composition, layout, {cell.workers, cell.ranks_per_node}, nullptr, nullptr), layout,
      0);
  const std::string more = WhatIsMore(plan, given);
  if (!more.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("its plan says more than the units that a given plan has: "
                                        "{}",
                                        more));
  }
  return with_plan;
}

void ForcePlans(SystemComparison& comparison, const std::vector<SystemSide>& sides,
                std::size_t giver, DisturbedTrials disturbed,
                const std::vector<std::unique_ptr<ModelledSide>>& models) {
  Forcer(comparison, sides, giver, disturbed, models).Run();
}

}  // namespace sparfuse::harness
