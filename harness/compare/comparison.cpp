#include "harness/compare/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

using SideCells = std::vector<std::map<CellKey, SideCell>>;  // by side

const SideCell* CellOf(const std::map<CellKey, SideCell>& cells, const CellKey& key) {
  const auto found = cells.find(key);
  return found == cells.end() || found->second.newest == nullptr ? nullptr : &found->second;
}

// "method:safusion is of revision 3 and 4"; "" if both are equal.
std::string WhyOtherRevisions(const TrialRow& first, const TrialRow& second) {
  const json& ours = first.revisions.Value();
  const json& other = second.revisions.Value();
  if (ours == other) return "";
  for (const auto& [part, revision] : ours.items()) {
    if (other.value(part, json()) != revision) {
      return fmt::format("{} has revision {} and {}", part, revision.dump(),
                         other.contains(part) ? other[part].dump() : "none");
    }
  }
  return "one of them has parts that the other lacks";
}

class Comparer {
 public:
  Comparer(const std::vector<SystemSide>& sides, const CompareRequest& request)
      : sides_(sides), request_(request) {
    for (const SystemSide& side : sides) cells_.push_back(CellsOf(side, request.disturbed));
  }

  SystemComparison Run() {
    SystemComparison comparison;
    std::map<std::pair<std::string, std::string>, std::vector<CellKey>> parts;
    for (const CellKey& key : Keys()) parts[{key.experiment, key.part}].push_back(key);
    for (const auto& [name, keys] : parts) {
      ComparedPart part{name.first, name.second, {}, {}};
      std::map<std::string, std::vector<CellKey>> settings;
      for (const CellKey& key : keys)
        settings[CanonicalWithout(AnyOf(key).config.Value(), MethodKeys())].push_back(key);
      for (const auto& [text, members] : settings) AddSetting(members, part);
      if (!part.cells.empty()) comparison.parts.push_back(std::move(part));
    }
    comparison.differences = DifferencesOf(compared_);
    AddPartlySet(compared_, comparison.differences);
    std::vector<std::string> names;
    for (const SystemSide& side : sides_) names.push_back(side.name);
    NameCells(compared_, names, comparison.differences);
    return comparison;
  }

 private:
  // The cells of the requested experiments that any side has.
  std::set<CellKey> Keys() const {
    std::set<CellKey> keys;
    for (const auto& cells : cells_) {
      for (const auto& [key, cell] : cells) {
        const auto& asked = request_.experiments;
        const bool wanted = asked.empty() || std::ranges::count(asked, key.experiment) > 0;
        if (wanted && cell.newest != nullptr) keys.insert(key);
      }
    }
    return keys;
  }

  bool IsOfEnoughSides(const CellKey& key) const {
    if (request_.lone && CellOf(cells_.front(), key) != nullptr) return true;
    const auto has = [&](const auto& cells) { return CellOf(cells, key) != nullptr; };
    return std::ranges::count_if(cells_, has) >= static_cast<std::ptrdiff_t>(request_.least_sides);
  }

  const TrialRow& AnyOf(const CellKey& key) const {
    for (const auto& cells : cells_) {
      if (const SideCell* cell = CellOf(cells, key)) return *cell->newest;
    }
    SPARFUSE_THROW(kInternal, "a cell that nobody ran");
  }

  // The reference of a cell in its setting: the one of equal sparsity, else the one with dense
  // gradients. Null if there is none, or several match.
  const CellKey* ReferenceOf(const CellKey& key, const std::vector<CellKey>& keys) const {
    const auto sparsity = [&](const CellKey& each) {
      const json& config = AnyOf(each).config.Value();
      json found = json::object();
      for (const std::string& name : SparsityKeys()) found[name] = config.value(name, json());
      return found;
    };
    std::vector<const CellKey*> alike, dense;
    for (const CellKey& other : keys) {
      if (AnyOf(other).method != request_.reference) continue;
      if (sparsity(other) == sparsity(key)) alike.push_back(&other);
      if (AnyOf(other).config.value("sparsifier", std::string()) == "none") dense.push_back(&other);
    }
    const auto& found = alike.empty() ? dense : alike;
    return found.size() == 1 ? found.front() : nullptr;
  }

  // keys: cells that differ in their method alone.
  void AddSetting(std::vector<CellKey> keys, ComparedPart& part) {
    const auto is_reference = [&](const CellKey& key) {
      return AnyOf(key).method == request_.reference;
    };
    const auto is_compared = [&](const CellKey& key) {
      return !is_reference(key) && IsOfEnoughSides(key);
    };
    if (std::ranges::none_of(keys, is_compared)) return;
    std::ranges::stable_sort(keys, {}, [&](const CellKey& key) { return AnyOf(key).method; });
    const auto control = std::ranges::find_if(keys, is_reference);
    ComparedSetting setting;
    setting.config = AnyOf(control == keys.end() ? keys.front() : *control).config.Value();
    for (const auto& cells : cells_) {
      const SideCell* measured = control == keys.end() ? nullptr : CellOf(cells, *control);
      setting.regimes.push_back(measured == nullptr ? Regime() : RegimeOf(*measured));
    }
    for (const CellKey& key : keys) {
      if (!is_compared(key)) continue;
      part.cells.push_back(Compared(key, ReferenceOf(key, keys), setting));
      part.cells.back().setting = part.settings.size();
    }
    std::erase_if(keys, [&](const CellKey& key) { return !IsOfEnoughSides(key); });
    Remember(keys);
    part.settings.push_back(std::move(setting));
  }

  ComparedCell Compared(const CellKey& key, const CellKey* reference,
                        const ComparedSetting& setting) const {
    ComparedCell compared;
    const TrialRow& any = AnyOf(key);
    compared.key = key;
    compared.config = any.config.Value();
    if (reference != nullptr) {
      compared.reference = reference->config_hash;
      compared.reference_config = AnyOf(*reference).config.Value();
    }
    compared.metric = request_.metric;
    if (compared.metric.empty())
      compared.metric = any.kind == "convergence" ? "final_metric" : "throughput";
    if (const auto unit = any.units.find(compared.metric); unit != any.units.end())
      compared.unit = std::string(unit->second);
    for (std::size_t side = 0; side < sides_.size(); ++side) {
      compared.sides.push_back(
          ValueOf(CellOf(cells_[side], key),
                  reference == nullptr ? nullptr : CellOf(cells_[side], *reference),
                  compared.metric, setting.regimes[side]));
    }
    for (std::size_t side = 1; side < sides_.size(); ++side)
      compared.verdicts.push_back(Judged(compared, reference, setting, side));
    compared.plans = PlansOf(key);
    return compared;
  }

  SideValue ValueOf(const SideCell* cell, const SideCell* reference, const std::string& metric,
                    const Regime& regime) const {
    SideValue value;
    const auto lacking = [&](std::string why) {
      value.lacks = std::move(why);
      return value;
    };
    if (cell == nullptr) return lacking("not run");
    value.absolute = cell->result.Over(metric);
    if (cell->result.MissedTarget(metric)) return lacking(std::string(kTargetNotReached));
    if (reference == nullptr) {
      return lacking(fmt::format("no {} in this setting to compare with", request_.reference));
    }
    if (const std::string part = PartOfTwoRevisions(*cell->newest, *reference->newest);
        !part.empty()) {
      return lacking(
          fmt::format("{} was run with another revision of {}", request_.reference, part));
    }
    if (reference->result.MissedTarget(metric))
      return lacking(fmt::format("{} of {}", kTargetNotReached, request_.reference));
    const auto by_block = RatiosByBlock(cell->result, reference->result, metric);
    const auto both =
        PairedDifference(cell->result.Values(metric), reference->result.Values(metric));
    if (both && by_block.size() < both->n) {  // dropping these would choose among the blocks
      return lacking(fmt::format("{} is not above 0 in {} of {} blocks", metric,
                                 both->n - by_block.size(), both->n));
    }
    value.ratios = OfBlocks(by_block);
    for (const auto& [block, by] : regime.moved) {
      if (by > request_.control && by_block.contains(block)) value.moved[block] = by;
    }
    value.ratio = RatioOf(cell->result, reference->result, metric);
    if (value.ratios.empty() || !value.ratio) {
      value.ratios.clear();
      value.moved.clear();
      value.lacks = cell->result.OnlyDisturbed() || reference->result.OnlyDisturbed()
                        ? "disturbed"
                        : fmt::format("no {} in a block of both", metric);
    }
    return value;
  }

  SideVerdict Judged(const ComparedCell& compared, const CellKey* reference,
                     const ComparedSetting& setting, std::size_t side) const {
    SideVerdict verdict{WhyNot(compared, reference, setting, side), {}};
    if (verdict.why_not.empty()) {
      verdict.contrast =
          ContrastOf(compared.sides[0].ratios, compared.sides[side].ratios, request_.within);
    }
    return verdict;
  }

  // "" or why the ratios of the first and this side cannot be compared.
  std::string WhyNot(const ComparedCell& compared, const CellKey* reference,
                     const ComparedSetting& setting, std::size_t side) const {
    for (const std::size_t each : {std::size_t{0}, side}) {
      if (const std::string& lacks = compared.sides[each].lacks; !lacks.empty())
        return fmt::format("{}: {}", sides_[each].name, lacks);
    }
    for (const CellKey* key : {&compared.key, reference}) {
      const std::string why =
          WhyOtherRevisions(*CellOf(cells_[0], *key)->newest, *CellOf(cells_[side], *key)->newest);
      if (!why.empty()) return why;
    }
    if (AnyOf(compared.key).mode == "modelled")
      return "modelled: a machine's profile decides it, and no block repeats it";
    const std::string why = WhyOtherRegime(setting.regimes[0], setting.regimes[side]);
    return why.empty() ? "" : "other regime: " + why;
  }

  std::string PlansOf(const CellKey& key) const {
    std::vector<SidePlan> plans;
    for (std::size_t side = 0; side < sides_.size(); ++side) {
      const SideCell* cell = CellOf(cells_[side], key);
      if (cell != nullptr) {
        const TrialRow& newest = *cell->newest;
        plans.push_back({sides_[side].name, sides_[side].outcome(newest), newest.config.Value(),
                         newest.provenance.value("environment", json()),
                         cell->result.Mean("achieved_density"),
                         cell->result.Mean("sparsify_seconds"),
                         cell->result.Mean("exposed_communication_seconds")});
      }
    }
    return PlanDifference(plans);
  }

  void Remember(const std::vector<CellKey>& keys) {
    compared_.resize(sides_.size());
    for (std::size_t side = 0; side < sides_.size(); ++side) {
      for (const CellKey& key : keys) {
        if (const SideCell* cell = CellOf(cells_[side], key))
          compared_[side].push_back(cell->result);
      }
    }
  }

  const std::vector<SystemSide>& sides_;
  const CompareRequest& request_;
  SideCells cells_;
  std::vector<std::vector<CellResult>> compared_;  // by side
};

}  // namespace

std::string PartOfTwoRevisions(const TrialRow& one, const TrialRow& other) {
  const json& theirs = other.revisions.Value();
  for (const auto& [part, revision] : one.revisions.Value().items()) {
    if (theirs.contains(part) && theirs[part] != revision) return part;
  }
  return "";
}

SystemComparison CompareSystems(const std::vector<SystemSide>& sides,
                                const CompareRequest& request) {
  SystemComparison comparison = Comparer(sides, request).Run();
  std::vector<FactDifference> facts = FingerprintFacts(sides);
  comparison.hardware = WhatDiffersInHardware(sides, comparison.differences);
  comparison.differences.insert(comparison.differences.begin(), facts.begin(), facts.end());
  return comparison;
}

}  // namespace sparfuse::harness
