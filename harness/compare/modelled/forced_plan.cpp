#include "harness/compare/modelled/forced_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"
#include "harness/catalog/fusion_plan.hpp"
#include "harness/catalog/trial_composition.hpp"
#include "harness/compare/differences.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The tensors of the trial, in its ready order.
std::vector<TensorShape> TensorsIn(const json& outcome) {
  std::vector<TensorShape> tensors;
  for (const json& each : outcome.value("layout", json::array()))
    tensors.push_back({each.at("name"), each.at("shape"), each.at("numel")});
  return tensors;
}

// Names the differences of a plan beside its units, as in "2 of its tensors are offloaded and none
// would be".
std::string WhatIsMore(const json& plan, const json& given) {
  std::vector<std::string> found;
  for (const auto& [key, what] : {std::pair("dense_units", "units sent dense"),
                                  {"side_units", "units selected from beside backward"}}) {
    if (plan.value(key, json::array()) != given.value(key, json::array()))
      found.push_back(fmt::format("{} {}", plan.value(key, json::array()).size(), what));
  }
  if (plan.contains("partitions") && !given.contains("partitions")) {
    const json& parts = plan["partitions"];
    found.push_back(
        fmt::format("{} units in several parts",
                    std::ranges::count_if(parts, [](const json& each) { return each > 1; })));
  }
  if (plan.contains("paths") && !given.contains("paths")) {
    found.push_back(fmt::format("the paths of {} units", plan["paths"].size()));
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
  const SideCell* own = nullptr;  // with the plan of the side's planner; null if it was not run
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
  // The outcome of the newest trial that counts; null if there is none.
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

  // If tensors become ready in another order, units with as many tensors are other units.
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

  // The trials with the plan, from the experiment and part with the most blocks of them.
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
    try {  // the side's actual plan, not the one that the model would make
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
  std::vector<std::map<CellKey, SideCell>> cells_;  // one map for each side
};

std::string IdOf(const std::string& giver) {
  std::string id = "plan-of-" + giver;
  std::ranges::replace_if(
      id, [](unsigned char c) { return !std::isalnum(c) && c != '_' && c != '-'; }, '-');
  return id;
}

json NumbersIn(const std::string& units) { return json::parse("[" + units + "]"); }

// Converts a configuration to the keys of an experiment file, with all of them.
json AsGiven(const json& config) {
  json given = json::object();
  for (const std::string& key : CellKeyNames()) {
    if (config.contains(key) && !config[key].is_null()) given[key] = config[key];
  }
  for (const char* modelled : {"cluster", "inputs"}) given.erase(modelled);  // empty in live cells
  json& method = given["method_options"];
  for (const char* part : {"strategy", "planner"}) method.erase(part);
  if (config["method_options"]["planner"] != kGivenPlanner) return given;
  method["plan"] = {{"units", NumbersIn(method["planner_options"]["units"])}};
  method.erase("planner_options");
  return given;
}

// Resolves the content of an experiment file in memory.
class Resolving {
 public:
  Resolving(const Catalog& catalog, const ProfileFolders& profiles,
            const std::filesystem::path& file)
      : file_(TomlFile::Parse("", file.string())), source_{file_, catalog, profiles} {}

  CellConfig Resolve(const json& given) const {
    GivenKeys keys;
    for (const auto& [key, value] : given.items()) keys[key] = {value, "/defaults/" + key};
    return ResolveCell(source_, "", keys);
  }

  bool Gives(const json& given, const std::string& config_hash) const {
    try {
      return ConfigHash(Resolve(given)) == config_hash;
    } catch (const Error&) {
      return false;
    }
  }

  // Removes the keys of `given` without which it still gives the cell of that hash.
  json Least(json given, const std::string& config_hash) const {
    Drop(given, given, config_hash);
    return given;
  }

 private:
  void Drop(json& table, json& whole, const std::string& config_hash) const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : table.items()) keys.push_back(key);
    for (const std::string& key : keys) {
      const json kept = table[key];
      table.erase(key);
      if (Gives(whole, config_hash)) continue;
      table[key] = kept;
      if (key != "link" && key != "plan" && kept.is_object()) Drop(table[key], whole, config_hash);
    }
  }

  TomlFile file_;
  CellSource source_;
};

std::string Toml(const json& value) {
  if (value.is_object()) {
    std::vector<std::string> members;
    for (const auto& [key, inner] : value.items())
      members.push_back(fmt::format("{} = {}", key, Toml(inner)));
    return members.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(members, ", "));
  }
  if (value.is_array()) {
    std::vector<std::string> elements;
    for (const json& each : value) elements.push_back(Toml(each));
    return fmt::format("[{}]", fmt::join(elements, ", "));
  }
  return value.dump();
}

struct WrittenCell {
  json least, whole;  // keys of an experiment file
};

// A part's [defaults], and one [[axis]] over its cells.
std::string PartText(const std::vector<WrittenCell>& cells) {
  std::set<std::string> keys;
  for (const WrittenCell& cell : cells) {
    for (const auto& [key, value] : cell.least.items()) keys.insert(key);
  }
  std::string defaults = "[part.defaults]\n", axis = "[[part.axis]]\n";
  for (const std::string& key : CellKeyNames()) {
    if (!keys.contains(key)) continue;
    const auto value_in = [&](const WrittenCell& cell) {
      if (cell.least.contains(key)) return cell.least[key];
      return key == "method_options" ? json::object() : cell.whole.at(key);
    };
    std::vector<json> values;
    std::vector<std::string> rows;
    for (const WrittenCell& cell : cells) {
      rows.push_back("  " + Toml(value_in(cell)));
      // A sparsity key may be a default although dense methods ignore it.
      if (cell.whole["sparsifier"] != "none" || std::ranges::count(SparsityKeys(), key) == 0)
        values.push_back(value_in(cell));
    }
    const bool alike = std::ranges::all_of(values, [&](const json& v) { return v == values[0]; });
    if (alike && key != "method") {
      defaults += fmt::format("{} = {}\n", key, Toml(values[0]));
      continue;
    }
    axis += fmt::format("{} = [\n{},\n]\n", key, fmt::join(rows, ",\n"));
  }
  return defaults + axis;
}

std::string CellText(const ComparedCell& cell) {
  return fmt::format("{}, {}, workers {}", cell.config.value("method", ""),
                     cell.config.value("workload", ""), cell.config.value("workers", 0));
}

class Writer {
 public:
  Writer(const SystemComparison& comparison, const std::vector<SystemSide>& sides,
         std::size_t giver, const Resolving& resolving)
      : comparison_(comparison), sides_(sides), giver_(giver), resolving_(resolving) {}

  PlanExperiment Write() {
    PlanExperiment made;
    made.id = IdOf(sides_[giver_].name);
    std::string parts;
    for (const ComparedPart& part : comparison_.parts) {
      for (std::size_t setting = 0; setting < part.settings.size(); ++setting)
        parts += Part(part, setting, made);
    }
    if (made.plans == 0) {
      SPARFUSE_THROW(kConfig,
                     made.left_out.empty()
                         ? fmt::format("no plan of {} differs from those of the other sides",
                                       sides_[giver_].name)
                         : fmt::format("no plan of {} can be forced: {}", sides_[giver_].name,
                                       made.left_out.front()));
    }
    made.text = fmt::format(
        "# The plans that {0} made, given to methods that would plan differently elsewhere, and "
        "next to\n# each the same method with its own planner. Written by sparfuse compare "
        "--with-plan.\nid = \"{1}\"\ntitle = \"Plans of {0} on another "
        "system\"\n\n[repeat]\nblocks = {2}\n{3}",
        sides_[giver_].name, made.id, blocks_, parts);
    return made;
  }

  const std::set<std::string>& hashes() const noexcept { return hashes_; }

 private:
  void Add(const CellConfig& config, std::vector<WrittenCell>& cells) {
    const std::string hash = ConfigHash(config);
    if (!hashes_of_part_.insert(hash).second) return;
    hashes_.insert(hash);
    const json whole = AsGiven(ToJson(config));
    cells.push_back({resolving_.Least(whole, hash), whole});
  }

  std::string Part(const ComparedPart& part, std::size_t setting, PlanExperiment& made) {
    std::vector<WrittenCell> cells;
    hashes_of_part_.clear();
    for (const ComparedCell& cell : part.cells) {
      if (cell.setting != setting || cell.reference_config.is_null()) continue;
      const auto differs =
          std::ranges::find_if(cell.forced, [](const ForcedPlan& each) { return !each.own; });
      if (differs == cell.forced.end()) continue;
      // A forced plan on one of several sides is enough.
      if (std::ranges::none_of(cell.forced, [](const ForcedPlan& each) {
            return !each.own && each.lacks.empty();
          })) {
        made.left_out.push_back(fmt::format("{}: {}", CellText(cell), differs->lacks));
        continue;
      }
      const CellConfig own = CellConfigOf(cell.config);
      const CellConfig given = WithPlanOf(own, sides_[giver_].outcome(*NewestOf(cell.key)));
      try {
        const CellConfig reference = CellConfigOf(cell.reference_config);
        for (const CellConfig* each : {&reference, &own, &given}) {
          if (ConfigHash(resolving_.Resolve(AsGiven(ToJson(*each)))) == ConfigHash(*each)) continue;
          SPARFUSE_THROW(kConfig,
                         "no experiment file of this program gives that cell: "
                         "" + CellName(*each));
        }
        for (const CellConfig* each : {&reference, &own, &given}) Add(*each, cells);
      } catch (const Error& error) {
        if (error.kind() != FailureKind::kConfig) throw;
        made.left_out.push_back(fmt::format("{}: {}", CellText(cell), error.what()));
        continue;
      }
      ++made.plans;
      for (const SideValue& value : cell.sides) blocks_ = std::max(blocks_, value.ratios.size());
    }
    if (cells.empty()) return "";
    return fmt::format("\n[[part]]\nid = \"setting{}\"\nreference = {}\n{}", ++settings_,
                       json(cells.front().whole.at("method")).dump(), PartText(cells));
  }

  // The giver's newest trial of a cell.
  const TrialRow* NewestOf(const CellKey& key) {
    if (cells_.empty()) cells_ = CellsOf(sides_[giver_], DisturbedTrials::kCount);
    return cells_.at(key).newest;
  }

  const SystemComparison& comparison_;
  const std::vector<SystemSide>& sides_;
  std::size_t giver_;
  const Resolving& resolving_;
  std::map<CellKey, SideCell> cells_;
  std::set<std::string> hashes_, hashes_of_part_;
  std::size_t blocks_ = kPreliminaryBelowBlocks;
  int settings_ = 0;
};

}  // namespace

CellConfig WithPlanOf(const CellConfig& cell, const json& outcome) {
  const json plan = LastPlan(outcome);
  const std::vector<TensorShape> tensors =
      outcome.is_object() ? TensorsIn(outcome) : std::vector<TensorShape>();
  if (plan.is_null() || tensors.empty() || !plan.contains("unit_sizes"))
    SPARFUSE_THROW(kConfig, "its trial states neither plan nor tensors");
  CellConfig with_plan = cell;
  MethodChoice& method = with_plan.method_options;
  method.planner = kGivenPlanner;
  method.planner_options = ResolveOptions("planner given", GivenPlanner().options,
                                          {{"units", plan["unit_sizes"].get<std::string>()}});
  method.sending["replan_every"] = std::int64_t{0};
  method.sending["dense_fallback"] = false;
  const Composition composition = Compose(with_plan);
  const GradientLayout layout = MakeLayout(tensors, with_plan);
  const json given = ToJson(SummaryOf(
      MakePlan(composition, layout, {cell.workers, cell.ranks_per_node}, nullptr, nullptr), layout,
      0));
  const std::string more = WhatIsMore(plan, given);
  if (!more.empty()) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("its plan has more than the units that a given plan can state: {}", more));
  }
  return with_plan;
}

void ForcePlans(SystemComparison& comparison, const std::vector<SystemSide>& sides,
                std::size_t giver, DisturbedTrials disturbed,
                const std::vector<std::unique_ptr<ModelledSide>>& models) {
  Forcer(comparison, sides, giver, disturbed, models).Run();
}

PlanExperiment ExperimentOfPlans(const SystemComparison& comparison,
                                 const std::vector<SystemSide>& sides, std::size_t giver,
                                 const Catalog& catalog, const ProfileFolders& profiles,
                                 const std::filesystem::path& file) {
  const Resolving resolving(catalog, profiles, file);
  Writer writer(comparison, sides, giver, resolving);
  PlanExperiment made = writer.Write();
  const Experiment read =
      ParseExperiment(TomlFile::Parse(made.text, file.string()), catalog, profiles);
  std::set<std::string> hashes;
  for (const Part& part : read.parts) {
    for (const Cell& cell : part.cells) hashes.insert(cell.config_hash);
  }
  if (hashes != writer.hashes())
    SPARFUSE_THROW(kInternal, "the experiment of plans has other cells than those it is made of");
  return made;
}

}  // namespace sparfuse::harness
