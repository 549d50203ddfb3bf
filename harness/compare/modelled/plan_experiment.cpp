#include "harness/compare/modelled/plan_experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/fusion/plan.hpp"
#include "harness/compare/modelled/forced_plan.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string IdOf(const std::string& giver) {
  std::string id = "plan-of-" + giver;
  std::ranges::replace_if(
      id, [](unsigned char c) { return !std::isalnum(c) && c != '_' && c != '-'; }, '-');
  return id;
}

json NumbersIn(const std::string& units) { return json::parse("[" + units + "]"); }

// A configuration with the keys of a file, all of them.
json AsGiven(const json& config) {
  json given = json::object();
  for (const std::string& key : CellKeyNames()) {
    if (config.contains(key) && !config[key].is_null()) given[key] = config[key];
  }
  for (const char* modelled : {"cluster", "inputs"}) given.erase(modelled);  // of live cells: empty
  json& method = given["method_options"];
  for (const char* part : {"strategy", "planner"}) method.erase(part);
  if (config["method_options"]["planner"] != kGivenPlanner) return given;
  method["plan"] = {{"units", NumbersIn(method["planner_options"]["units"])}};
  method.erase("planner_options");
  return given;
}

// Resolves what a file would give.
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

  // Drops of `given` what the cell of that hash is without, too.
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
  json least, whole;  // keys of a file
};

// A part's [defaults] and one [[axis]] over its cells.
std::string PartText(const std::vector<WrittenCell>& cells) {
  std::set<std::string> keys;
  for (const WrittenCell& cell : cells) {
    for (const auto& [key, value] : cell.least.items()) keys.insert(key);
  }
  const auto value_in = [](const WrittenCell& cell, const std::string& key) -> const json& {
    return cell.least.contains(key) ? cell.least[key] : cell.whole.at(key);
  };
  std::string defaults = "[part.defaults]\n", axis = "[[part.axis]]\n";
  for (const std::string& key : CellKeyNames()) {
    if (!keys.contains(key)) continue;
    std::vector<json> values;
    // What a dense method has no use for does not keep the others from having it in common.
    for (const WrittenCell& cell : cells) {
      if (cell.whole["sparsifier"] != "none" || std::ranges::count(SparsityKeys(), key) == 0)
        values.push_back(key == "method_options" && !cell.least.contains(key)
                             ? json::object()
                             : value_in(cell, key));
    }
    const bool alike = std::ranges::all_of(values, [&](const json& v) { return v == values[0]; });
    if (alike && key != "method") {
      defaults += fmt::format("{} = {}\n", key, Toml(values[0]));
      continue;
    }
    std::vector<std::string> rows;
    for (const WrittenCell& cell : cells) {
      const bool none = key == "method_options" && !cell.least.contains(key);
      rows.push_back("  " + Toml(none ? json::object() : value_in(cell, key)));
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
        "# The plans that {0} made, given to methods that would plan otherwise elsewhere; beside "
        "each the\n# same method with its own planner. Written by sparfuse compare --with-plan.\n"
        "id = \"{1}\"\ntitle = \"Plans of {0} on another system\"\n\n[repeat]\nblocks = {2}\n{3}",
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
      // On one of several sides is enough.
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
          SPARFUSE_THROW(kConfig, "no file of this program's makes that cell: " + CellName(*each));
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
