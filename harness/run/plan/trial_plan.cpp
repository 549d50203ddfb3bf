#include "harness/run/plan/trial_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <set>
#include <span>
#include <utility>

#include "core/device/card.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "harness/run/plan/shared_launch.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// The stored trials of a cell and block.
struct Stored {
  const TrialRow* current = nullptr;  // a match; a disturbed one if there is no other
  std::optional<std::string> why;     // why none matches; nothing if there is no trial
};

// store: only this store's trials match; if it is empty, any store's.
Stored FindStored(const PlannedTrial& trial, const std::string& system_hash,
                  const std::vector<const TrialRow*>& rows, const std::optional<std::string>& store,
                  const std::filesystem::path& results) {
  const json revisions = trial.revisions;
  std::optional<std::string> why;
  const TrialRow* disturbed = nullptr;
  for (const TrialRow* row : rows) {
    if (row->block != trial.block) continue;
    const int hosts = HostsOf(*row);
    if (trial.hosts > 0 && hosts > 0 && hosts != trial.hosts) {
      why = fmt::format("hosts differ: {} -> {}", hosts, trial.hosts);
    } else if (row->system_hash != system_hash) {
      why = "system differs: " + WhatDiffers(row->system, ToJson(trial.system));
    } else if (store && row->store != *store) {
      if (!why) why = "its block comes from another results folder, which lacks part of it";
    } else if (row->revisions != revisions) {
      why = "revision differs: " + WhatDiffers(row->revisions, revisions);
    } else if (row->is_left_out()) {
      why = (row->annotations.empty() ? "" : "called bad: ") + row->WhyLeftOut().front();
    } else if (row->status != "ok") {
      why = fmt::format("{} before ({}): {}", row->status, row->failure_kind,
                        FailureMessageIn(results / row->directory));
    } else if (row->disturbed()) {
      disturbed = row;
    } else {
      return {row, std::nullopt};
    }
  }
  if (disturbed != nullptr) return {disturbed, std::nullopt};
  return {nullptr, why};
}

// For a cell that never ran: the differences from the stored trial with the nearest configuration.
std::string NearestStored(const CellConfig& cell, const std::vector<TrialRow>& rows) {
  const json config = ToJson(cell);
  const TrialRow* nearest = nullptr;
  std::size_t least = 4;  // more than three differences make another cell
  const std::string workload = WorkloadLabel(cell.workload);  // an edited table counts as near
  for (const auto& row : rows) {
    if (row.kind != NameOf(cell.kind) || WorkloadLabel(row.workload) != workload) continue;
    std::size_t differences = 0;
    for (const auto& [key, value] : config.items()) {
      differences += !row.config.contains(key) || row.config[key] != value;
    }
    if (differences > 0 && differences < least) {
      least = differences;
      nearest = &row;
    }
  }
  if (nearest == nullptr) return "never run";
  return "never run; nearest stored: " + WhatDiffers(nearest->config, config);
}

// Revisions and sources that the blocks of a cell share.
class PartsOfCells {
 public:
  explicit PartsOfCells(const PlanContext& context) : context_(context) {}

  struct Parts {
    std::map<std::string, std::int64_t> revisions;
    std::map<std::string, std::string> sources;
  };
  const Parts& Of(const CellConfig& config, const std::string& config_hash) {
    const auto [found, is_new] = known_.try_emplace(config_hash);
    if (is_new) found->second = {RevisionsOf(context_.catalog, config), SourcesOf(config)};
    return found->second;
  }

 private:
  const PlanContext& context_;
  std::map<std::string, Parts> known_;
};

PlannedTrial MakeTrial(const PlanContext& context, PartsOfCells& parts,
                       const std::string& experiment, const Part& part, const CellConfig& config,
                       const std::string& config_hash, int block) {
  const auto& [revisions, sources] = parts.Of(config, config_hash);
  PlannedTrial trial;
  trial.experiment = experiment;
  trial.part = part.id;
  trial.config = config;
  trial.config_hash = config_hash;
  trial.system = context.SystemOf(config);
  trial.hosts = context.HostsOf(config);
  trial.revisions = revisions;
  trial.sources = sources;
  trial.block = block;
  trial.seed = part.base_seed + block;
  trial.timeout_seconds = part.timeout_seconds;
  trial.quiet = part.quiet;
  return trial;
}

bool NeedsThisMachine(const CellConfig& config) {
  return config.modelled() && IsOwnCluster(config.cluster);
}

bool RunsIn(int block, const Cell& cell, const Part& part) {
  return std::ranges::any_of(
      cell.first_blocks, [&](int first) { return first <= block && block < first + part.blocks; });
}

// Means of stored trials like this one: of the same cell, else of the same kind, mode, workload and
// workers, else of the same kind and mode; 0 without any.
EstimatedTime EstimateTime(const CellConfig& config, const std::string& config_hash,
                           const std::vector<TrialRow>& rows) {
  EstimatedTime sum[3] = {};
  std::size_t count[3] = {};
  for (const auto& row : rows) {
    if (row.status != "ok" || row.kind != NameOf(config.kind) || row.mode != NameOf(config.mode))
      continue;
    const bool alike = row.workload == config.workload && row.workers == config.workers;
    const int level = row.config_hash == config_hash ? 0 : alike ? 1 : 2;
    const RowLaunch& launch = row.launch;
    const double its_start = launch.start_seconds / static_cast<double>(launch.trials);
    sum[level].start += launch.start_seconds;
    sum[level].turns += std::max(0.0, row.seconds - its_start);
    ++count[level];
  }
  for (int level = 0; level < 3; ++level) {
    const auto n = static_cast<double>(count[level]);
    if (n > 0) return {sum[level].start / n, sum[level].turns / n};
  }
  return {};
}

// Adds `trial` unless the store has it or it is planned already.
class Collector {
 public:
  Collector(const PlanContext& context, const std::vector<TrialRow>& rows)
      : context_(context), rows_(rows) {
    for (const auto& row : rows) by_config_[row.config_hash].push_back(&row);
  }

  // The store whose trials are used for a block. A block's trials are compared with one another, so
  // they must be of one store. The reading store ("") is used if it has begun the block or if no
  // store has the whole block.
  std::string StoreOf(const std::vector<PlannedTrial>& block) {
    std::map<std::string, std::size_t> has;
    for (const PlannedTrial& trial : block) {
      std::set<std::string> stores;
      const std::string& system_hash = SystemHashOf(trial);
      const json revisions = trial.revisions;
      for (const TrialRow* row : by_config_[trial.config_hash]) {
        const int hosts = HostsOf(*row);
        const bool here = trial.hosts == 0 || hosts == 0 || hosts == trial.hosts;
        if (row->block == trial.block && row->counts() && here && row->system_hash == system_hash &&
            row->revisions == revisions)
          stores.insert(row->store);
      }
      for (const std::string& store : stores) ++has[store];
    }
    if (has.contains("")) return "";
    const auto whole =
        std::ranges::find(has, block.size(), [](const auto& each) { return each.second; });
    return whole == has.end() ? "" : whole->first;
  }

  void Add(PlannedTrial trial, const std::optional<std::string>& store = std::nullopt) {
    SystemHashOf(trial);
    if (!planned_.insert(fmt::format("{} {} {}", trial.config_hash, trial.block, system_hash_))
             .second) {
      return;
    }
    if (trial.why.empty()) {
      const Stored stored = FindStored(trial, system_hash_, by_config_[trial.config_hash], store,
                                       context_.store.results());
      const bool disturbed = stored.current != nullptr && stored.current->disturbed();
      if (stored.current != nullptr && !context_.fresh &&
          !(disturbed && context_.retry_disturbed)) {
        ++plan.present;
        plan.disturbed += disturbed;
        CompareSources(trial.sources, stored.current->provenance);
        return;
      }
      trial.why = stored.current == nullptr ? stored.why.value_or(WhatIsNew(trial))
                  : context_.fresh          ? "--fresh"
                                            : "disturbed: " + stored.current->WhyDisturbed();
    }
    trial.estimate = EstimateOf(trial);
    trial.estimated_seconds = trial.estimate.start + trial.estimate.turns;
    plan.trials.push_back(std::move(trial));
  }

  TrialPlan plan;

 private:
  const std::string& SystemHashOf(const PlannedTrial& trial) {
    if (system_hash_.empty() || trial.system != system_) {  // many trials share a system
      system_ = trial.system;
      system_hash_ = HashOf(system_);
    }
    return system_hash_;
  }

  // The blocks of a cell share one estimate.
  EstimatedTime EstimateOf(const PlannedTrial& trial) {
    const auto [found, is_new] = estimates_.try_emplace(trial.config_hash);
    if (is_new) found->second = EstimateTime(trial.config, trial.config_hash, rows_);
    return found->second;
  }
  std::string WhatIsNew(const PlannedTrial& trial) {
    const auto [found, is_new] = what_is_new_.try_emplace(trial.config_hash);
    if (is_new) found->second = NearestStored(trial.config, rows_);
    return found->second;
  }

  void CompareSources(const std::map<std::string, std::string>& now, const json& provenance) {
    const json then = provenance.value("sources", json::object());
    for (const auto& [part, hash] : now) {
      if (then.contains(part) && then[part] != hash) ++plan.other_sources[part];
    }
  }

  const PlanContext& context_;
  const std::vector<TrialRow>& rows_;
  std::map<std::string, std::vector<const TrialRow*>> by_config_;
  std::map<std::string, std::string> what_is_new_;
  std::map<std::string, EstimatedTime> estimates_;
  std::set<std::string> planned_;
  System system_;  // system of the previous trial
  std::string system_hash_;
};

}  // namespace

void KeepProfiles(TrialPlan& live) {
  std::erase_if(live.trials, [](const PlannedTrial& trial) { return !trial.config.is_profile(); });
}

System PlanContext::SystemOfLaunches() const { return SystemOfHosts(hosts.nodes.size()); }

System PlanContext::SystemOf(const CellConfig& config) const {
  const bool here = !hosts.across || hosts.nodes.empty() || config.modelled() ||
                    config.transport == Transport::kThreads;
  if (here) return machine;
  return SystemOfHosts(static_cast<std::size_t>(HostsOf(config)));
}

System PlanContext::SystemOfHosts(std::size_t count) const {
  if (hosts.nodes.empty()) return machine;
  return SystemOfNodes(std::span(hosts.nodes).first(std::min(hosts.nodes.size(), count)));
}

int PlanContext::HostsOf(const CellConfig& config) const {
  if (config.modelled()) return 0;
  return hosts.across && config.transport != Transport::kThreads ? NodesOf(config) : 1;
}

TrialPlan PlanLive(const PlanContext& context, const std::vector<Experiment>& experiments,
                   const std::vector<TrialRow>& rows) {
  Collector collector(context, rows);
  PartsOfCells parts(context);
  for (const auto& experiment : experiments) {
    const ProfileNeeds needs = NeedsOf(experiment);
    for (const auto& part : PartsWithTwins(experiment)) {
      for (const auto& cell : part.cells) {
        if (!NeedsThisMachine(cell.config)) continue;
        for (const auto& config : ProfileConfigsFor(cell.config, needs)) {
          Part profile;
          profile.id = "profile";
          profile.base_seed = part.base_seed;
          profile.timeout_seconds = part.timeout_seconds;
          collector.Add(
              MakeTrial(context, parts, experiment.id, profile, config, ConfigHash(config), 0));
        }
      }
    }
  }
  int blocks = 0;
  for (const auto& experiment : experiments) {
    for (const auto& part : experiment.parts) {
      for (const Cell& cell : part.cells) {
        for (const int first : cell.first_blocks) blocks = std::max(blocks, first + part.blocks);
      }
    }
  }
  // Each block runs in every part before the next block begins, so an interruption leaves balanced
  // results.
  std::size_t next_launch = 1;
  for (int block = 0; block < blocks; ++block) {
    for (const auto& experiment : experiments) {
      for (const auto& part : experiment.parts) {
        std::vector<PlannedTrial> trials;
        for (const auto& cell : part.cells) {
          if (cell.config.modelled() || !RunsIn(block, cell, part)) continue;
          trials.push_back(
              MakeTrial(context, parts, experiment.id, part, cell.config, cell.config_hash, block));
        }
        std::mt19937_64 random(static_cast<std::uint64_t>(part.base_seed + block));
        Shuffle(trials, random);
        const std::size_t planned = collector.plan.trials.size();
        const std::string store = collector.StoreOf(trials);
        for (auto& trial : trials) collector.Add(std::move(trial), store);
        FormLaunches(std::span(collector.plan.trials).subspan(planned), context.memory,
                     part.interleave, next_launch);
      }
    }
  }
  return std::move(collector.plan);
}

std::vector<std::string> ProblemsOf(const TrialPlan& plan) {
  std::vector<std::string> problems;
  for (const auto& [part, trials] : plan.other_sources) {
    problems.push_back(
        fmt::format("{} trial(s) of the store count although they were made with other sources of "
                    "{}: if results may differ, run them again with --fresh, or raise its revision",
                    trials, part));
  }
  std::map<std::string, std::size_t> alone;
  for (const PlannedTrial& trial : plan.trials) {
    if (!trial.alone.empty()) ++alone[trial.part + ": " + trial.alone];
  }
  for (const auto& [why, trials] : alone) {
    problems.push_back(fmt::format(
        "{} trial(s) run one after another instead of side by side: part {}", trials, why));
  }
  const auto on_cards = std::ranges::count_if(
      plan.trials, [](const PlannedTrial& trial) { return trial.config.device == Place::kCuda; });
  if (on_cards == 0) return problems;
  if (const std::string why = WhyNoCuda(); !why.empty()) {
    problems.push_back(
        fmt::format("{} trial(s) with device = \"cuda\" will fail: this machine has no CUDA "
                    "device: {}",
                    on_cards, why));
  }
  return problems;
}

TrialPlan PlanModelled(const PlanContext& context, const std::vector<Experiment>& experiments,
                       const std::vector<TrialRow>& rows) {
  Collector collector(context, rows);
  PartsOfCells parts(context);
  // Profiles are measured by ranks of one host.
  const System machine = context.SystemOfHosts(1);
  const std::string system_hash = HashOf(machine);
  for (const auto& experiment : experiments) {
    const ProfileNeeds needs = NeedsOf(experiment);
    for (const auto& part : PartsWithTwins(experiment)) {
      std::map<std::string, FoundProfile> profiles;  // cells that differ in the method share one
      for (const auto& cell : part.cells) {
        if (!cell.config.modelled()) continue;
        const auto [found, is_new] =
            profiles.try_emplace(CanonicalWithout(cell.json, MethodKeys()));
        if (is_new) {
          found->second =
              FindProfile(context.catalog, context.store, rows, cell.config, needs, system_hash);
        }
        const FoundProfile& profile = found->second;
        for (int block = 0; block < part.blocks; ++block) {
          PlannedTrial trial =
              MakeTrial(context, parts, experiment.id, part, cell.config, cell.config_hash, block);
          trial.profile = profile.content;
          trial.why = profile.missing;
          trial.system = profile.missing.empty()
                             ? ModelledSystem(cell.config, profile.content, machine)
                             : System();
          collector.Add(std::move(trial));
        }
      }
    }
  }
  return std::move(collector.plan);
}

namespace {

// Whether `cell` may be divided by `reference`: they differ in the method alone, and `reference` is
// dense or equally sparse.
bool IsReferenceOf(const Cell& reference, const Cell& cell) {
  const CellConfig& a = reference.config;
  const CellConfig& b = cell.config;
  return (a.sparsifier == "none" || (a.sparsifier == b.sparsifier && a.density == b.density)) &&
         CanonicalWithout(reference.json, MethodKeys()) ==
             CanonicalWithout(cell.json, MethodKeys());
}

// The blocks in which each cell was tried with its parts' current revisions, on the system on which
// its launches run.
class Tried {
 public:
  Tried(const PlanContext& context, const std::vector<TrialRow>& rows)
      : context_(context), rows_(rows) {}

  bool Has(const Cell& cell, int block) {
    if (const auto [at, is_new] = seen_.insert(cell.config_hash); is_new) {
      const json revisions = RevisionsOf(context_.catalog, cell.config);
      const std::string system_hash = HashOf(context_.SystemOf(cell.config));
      for (const TrialRow& row : rows_) {
        if (row.config_hash == cell.config_hash && row.system_hash == system_hash &&
            row.revisions == revisions)
          blocks_.emplace(row.config_hash, row.block);
      }
    }
    return blocks_.contains({cell.config_hash, block});
  }

 private:
  const PlanContext& context_;
  const std::vector<TrialRow>& rows_;
  std::set<std::string> seen_;
  std::set<std::pair<std::string, int>> blocks_;
};

void OpenBlocksOf(Tried& tried, Part& part) {
  const std::set<std::string> methods = DenominatorsOf(part);
  for (Cell& cell : part.cells) {
    if (!cell.joined || cell.config.modelled()) continue;
    std::vector<Cell*> references;
    for (Cell& other : part.cells) {
      if (&other != &cell && methods.contains(other.config.method) && IsReferenceOf(other, cell))
        references.push_back(&other);
    }
    int first = 0;
    while (!tried.Has(cell, first) && std::ranges::any_of(references, [&](const Cell* reference) {
      return tried.Has(*reference, first);
    }))
      first += part.blocks;
    cell.first_blocks = {first};
    for (Cell* reference : references) {
      std::vector<int>& known = reference->first_blocks;
      if (std::ranges::find(known, first) == known.end()) known.push_back(first);
    }
  }
}

}  // namespace

void OpenBlocks(const PlanContext& context, const std::vector<TrialRow>& rows,
                std::vector<Experiment>& experiments) {
  Tried tried(context, rows);
  for (Experiment& experiment : experiments) {
    for (Part& part : experiment.parts) OpenBlocksOf(tried, part);
  }
}

}  // namespace sparfuse::harness
