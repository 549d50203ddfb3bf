#include "harness/compare/modelled/modelled_side.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/error.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kMachineEach = "machines-like-this";

// Adds the newest profile trial of each subject with current revisions. Returns whether there is
// any.
bool AddProfileTrials(const SystemSide& side, const Catalog& catalog, ProfileOutcomes& outcomes) {
  bool added = false;
  for (const TrialRow& row : side.rows) {
    if (row.kind != "profile" || !row.counts()) continue;
    const json& config = row.config;
    if (row.revisions != RevisionsOf(catalog, CellConfigOf(config))) continue;
    json outcome = side.outcome(row);
    if (!outcome.is_object() || !outcome.contains("profile")) continue;
    outcome["config"] = config;
    PutProfile(outcomes, ProfileOutcomeOf(outcome, row.directory));
    added = true;
  }
  return added;
}

// The system on which live trials ran; null if there is none.
json SystemOf(const SystemSide& side) {
  const auto found = std::ranges::find_if(
      side.rows, [](const TrialRow& row) { return !row.system.contains("cluster"); });
  return found == side.rows.end() ? json() : found->system.Value();
}

double ValueIn(const StepModel& step, const std::string& metric) {
  return metric == "exposed_communication_seconds" ? step.exposed_seconds : step.seconds;
}

// "" or why no ratio of the cell's first side can be carried over.
std::string WhyNot(const ComparedCell& cell) {
  if (!cell.sides[0].lacks.empty()) return cell.sides[0].lacks;
  if (cell.config.value("mode", "") == "modelled") return "modelled: nothing was measured";
  if (cell.config.value("kind", "") != "throughput") return "the model trains nothing";
  return "";
}

Transported TransportedOf(const ComparedCell& cell, const ComparedSetting& setting,
                          const std::vector<std::unique_ptr<ModelledSide>>& models,
                          std::size_t side) {
  Transported carried;
  carried.lacks = WhyNot(cell);
  if (!carried.lacks.empty()) return carried;
  const CellConfig config = CellConfigOf(cell.config),
                   reference = CellConfigOf(cell.reference_config);
  ModelledRatio first, second;
  try {
    first = models[0]->RatioOf(config, reference, cell.metric, HostsOf(setting, 0));
    second = models[side]->RatioOf(config, reference, cell.metric, HostsOf(setting, side));
  } catch (const Error& error) {
    if (error.kind() != FailureKind::kConfig) throw;
    carried.lacks = error.what();
    return carried;
  }
  const Interval change = (second / first).Band();
  carried.model_first = first.Band();
  carried.model_second = second.Band();
  carried.ratio = Product(*cell.sides[0].ratio, change);
  // Otherwise the residual would include differences beside the machines, such as revisions.
  const std::string& why_not = cell.verdicts[side - 1].why_not;
  if (!cell.sides[side].lacks.empty() || (!why_not.empty() && !why_not.starts_with("other regime")))
    return carried;
  const Contrast contrast = ContrastOf(cell.sides[side].ratios, cell.sides[0].ratios, kSameWithin);
  carried.residual = Product(contrast.ratio, Inverse(change));
  return carried;
}

}  // namespace

SideProfile ProfileOfSide(const SystemSide& side, const Catalog& catalog,
                          const ProfileFolders& profiles, const std::string& named) {
  SideProfile found;
  if (!named.empty()) {
    NeedCluster(profiles, named);
    if (IsDeclared(profiles, named)) {
      found.declared = named;
      found.name = named + " (declared)";
      return found;
    }
    if (!IsOwnCluster(named)) {
      found.file = named;
      found.outcomes = ReadProfiles(profiles.File(named + ".json"));
      found.name = fmt::format("{} ({})", named, KindOfAll(found.outcomes));
      return found;
    }
  }
  std::vector<std::string> names;
  const json system = SystemOf(side);
  for (const std::string& name : profiles.Names(".json")) {
    const ProfileOutcomes outcomes = ReadProfiles(profiles.File(name + ".json"));
    if (outcomes.empty() || !std::ranges::all_of(outcomes, [&](const ProfileOutcome& outcome) {
          return IsOfMachine(outcome, system);
        })) {
      continue;
    }
    for (const ProfileOutcome& outcome : outcomes) PutProfile(found.outcomes, outcome);
    names.push_back(fmt::format("{} ({})", name, KindOfAll(outcomes)));
  }
  if (AddProfileTrials(side, catalog, found.outcomes))
    names.push_back("profile trials of " + side.name);
  found.name = names.empty() ? "nothing" : fmt::format("{}", fmt::join(names, ", "));
  return found;
}

Interval ModelledRatio::Band() const {
  if (draws.empty()) return {value, value, value, 1};
  Interval band = BandOfDraws(value, draws);
  band.n = draws.size();  // equal draws leave ends, too
  return band;
}

ModelledRatio operator/(const ModelledRatio& a, const ModelledRatio& b) {
  ModelledRatio ratio{a.value / b.value};
  if (a.draws.size() != b.draws.size()) return ratio;
  for (std::size_t i = 0; i < a.draws.size(); ++i) ratio.draws.push_back(a.draws[i] / b.draws[i]);
  return ratio;
}

ModelledSide::ModelledSide(const ProfileFolders& profiles, std::string side, SideProfile profile,
                           int stream)
    : profiles_(profiles), side_(std::move(side)), profile_(std::move(profile)), stream_(stream) {}

CellConfig ModelledSide::Placed(CellConfig cell, int hosts) const {
  cell.mode = Mode::kModelled;
  cell.cluster = !profile_.declared.empty() ? profile_.declared
                 : hosts > 1                ? kMachineEach
                                            : kThisMachine;
  return cell;
}

const ModelledSide::Steps& ModelledSide::StepsOf(const CellConfig& cell) {
  const auto [kept, is_new] = steps_.try_emplace(ConfigHash(cell));
  if (!is_new) return kept->second;
  try {
    if (!cluster_) {
      cluster_.emplace(profiles_, profile_.declared.empty() ? kThisMachine : profile_.declared,
                       profile_.outcomes);
    }
    Steps steps{ModelSteps(FirstTrial(cell), cluster_->Profiles(cell, 0)), {}};
    if (!cluster_->HasDraws(cell)) return kept->second = std::move(steps);
    // Draws model a usual step. Each is scaled by the ratio of all steps' median to that step.
    const StepModel usual = ModelUsualStep(FirstTrial(cell), cluster_->Profiles(cell, 0));
    const auto scaled = [](double drawn, double usual_step, double expected) {
      return usual_step > 0 ? drawn / usual_step * expected : drawn;
    };
    const int before = profile_.declared.empty() ? kDraws * stream_ : 0;
    for (int draw = 1; draw <= kDraws; ++draw) {
      const StepModel drawn =
          ModelUsualStep(FirstTrial(cell), cluster_->Profiles(cell, before + draw));
      steps.draws.push_back(
          {scaled(drawn.seconds, usual.seconds, steps.expected.seconds),
           scaled(drawn.exposed_seconds, usual.exposed_seconds, steps.expected.exposed_seconds)});
    }
    return kept->second = std::move(steps);
  } catch (...) {
    steps_.erase(kept);
    throw;
  }
}

ModelledRatio ModelledSide::RatioOf(const CellConfig& cell, const CellConfig& over,
                                    const std::string& metric, int hosts) {
  if (metric != "throughput" && metric != "step_seconds" &&
      metric != "exposed_communication_seconds") {
    SPARFUSE_THROW(kConfig, fmt::format("the model has no {}: expected throughput, step_seconds or "
                                        "exposed_communication_seconds",
                                        metric));
  }
  const auto quotient = [&](const StepModel& of, const StepModel& to) {
    if (metric == "throughput") return to.seconds / of.seconds;
    return ValueIn(of, metric) / ValueIn(to, metric);
  };
  try {
    const CellConfig placed = Placed(cell, hosts);
    const Steps& of = StepsOf(placed);
    const Steps& to = StepsOf(Placed(over, hosts));
    if (!(quotient(of.expected, to.expected) > 0)) {
      SPARFUSE_THROW(kConfig, fmt::format("the model has no {} of one of the two", metric));
    }
    ModelledRatio ratio{quotient(of.expected, to.expected)};
    for (std::size_t i = 0; i < std::min(of.draws.size(), to.draws.size()); ++i)
      ratio.draws.push_back(quotient(of.draws[i], to.draws[i]));
    return ratio;
  } catch (const Error& error) {
    if (error.kind() != FailureKind::kConfig || !profile_.declared.empty()) throw;
    std::string why = error.what();
    why.erase(std::min(why.find("; measure it with"), why.size()));  // its advice is meant for here
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}; measure it on {} with `{} --ranks {}`", why, side_,
                               MeasureCommand(MeasuredLike(profile_.outcomes, cell), profile_.file),
                               std::max(2, cell.workers)));
  }
}

Interval Product(const Interval& a, const Interval& b) {
  const double value = a.value * b.value;
  Interval product{value, value, value, a.n};
  if (!a.has_bounds() || !b.has_bounds()) {
    product.n = 1;
    return product;
  }
  const auto away = [](double end, double middle) { return std::log(end / middle); };
  product.low = value * std::exp(-std::hypot(away(a.low, a.value), away(b.low, b.value)));
  product.high = value * std::exp(std::hypot(away(a.high, a.value), away(b.high, b.value)));
  return product;
}

Interval Inverse(const Interval& of) { return {1 / of.value, 1 / of.high, 1 / of.low, of.n}; }

int HostsOf(const ComparedSetting& setting, std::size_t side) {
  const int own = setting.regimes[side].hosts;
  return own > 0 ? own : setting.regimes[0].hosts;
}

void CarryOver(SystemComparison& comparison,
               const std::vector<std::unique_ptr<ModelledSide>>& models) {
  for (ComparedPart& part : comparison.parts) {
    for (ComparedCell& cell : part.cells) {
      cell.transported.clear();
      for (std::size_t side = 1; side < models.size(); ++side)
        cell.transported.push_back(TransportedOf(cell, part.settings[cell.setting], models, side));
    }
  }
}

}  // namespace sparfuse::harness
