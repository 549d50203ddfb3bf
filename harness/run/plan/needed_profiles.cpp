#include "harness/run/plan/needed_profiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/catalog/revisions.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

using nlohmann::json;

CellConfig ProfileConfig(const ProfileNeeds& needs, int ranks, const std::optional<LinkShape>& link,
                         int ranks_per_node) {
  CellConfig config;
  config.kind = TrialKind::kProfile;
  config.mode = link ? Mode::kEmulated : Mode::kMeasured;
  config.workload = needs.workload;
  config.workload_options = needs.workload_options;
  config.recipe = needs.recipe;
  config.workers = ranks;
  config.ranks_per_node = !link ? ranks : link->has_within() ? std::min(ranks_per_node, ranks) : 1;
  config.threads_per_worker = needs.threads_per_worker;
  config.batch_per_worker = needs.batch_per_worker;
  config.device = needs.device;
  config.precision = needs.precision;
  config.link = link;
  config.warmup_steps = needs.warmup_steps;
  config.steps = needs.steps;
  config.sparsifiers = needs.sparsifiers;
  config.quantizers = needs.quantizers;
  return config;
}

std::vector<CellConfig> ProfileConfigsFor(const CellConfig& config, const ProfileNeeds& needs) {
  const std::optional<LinkShape> link = config.measured_link();
  const int per_node = link && link->has_within() ? config.ranks_per_node : 1;
  std::set<int> ranks = {1};
  if (config.workers > 1) ranks.insert(2);
  if (config.workers > per_node) ranks.insert(2 * per_node);
  if (config.cluster == kThisMachine) {
    const int most = std::min(config.workers, needs.most_ranks);
    for (int count = 4; count <= most; count *= 2) ranks.insert(count);
    ranks.insert(most);
  }
  ProfileNeeds here = needs;
  here.workload = config.workload;
  here.workload_options = config.workload_options;
  here.recipe = config.recipe;
  here.batch_per_worker = config.batch_per_worker;
  here.threads_per_worker = config.threads_per_worker;
  here.device = config.device;
  here.precision = config.precision;
  std::vector<CellConfig> configs;
  for (const int count : ranks) {
    if (count % std::min(per_node, count) != 0) continue;
    configs.push_back(ProfileConfig(here, count, count > 1 ? link : std::nullopt, per_node));
  }
  return configs;
}

ProfileNeeds NeedsOf(const Experiment& experiment) {
  ProfileNeeds needs;
  std::set<std::string> sparsifiers;
  std::set<std::string> quantizers;
  for (const auto& part : experiment.parts) {
    for (const auto& cell : part.cells) {
      const CellConfig& config = cell.config;
      if (!config.modelled()) needs.most_ranks = std::max(needs.most_ranks, config.workers);
      if (config.is_profile()) continue;
      sparsifiers.insert(config.sparsifier);
      quantizers.insert(StringOption(config.method_options.sending, "payload_dense"));
    }
  }
  sparsifiers.erase("none");
  quantizers.erase("indexed");
  needs.sparsifiers.assign(sparsifiers.begin(), sparsifiers.end());
  needs.quantizers.assign(quantizers.begin(), quantizers.end());
  return needs;
}

const TrialRow* FindTrial(const Catalog& catalog, const std::vector<TrialRow>& rows,
                          const CellConfig& config, const std::string& system_hash) {
  const std::string hash = ConfigHash(config);
  const json revisions = RevisionsOf(catalog, config);
  const auto row = std::find_if(rows.rbegin(), rows.rend(), [&](const TrialRow& candidate) {
    return candidate.counts() && candidate.config_hash == hash &&
           (system_hash.empty() || candidate.system_hash == system_hash) &&
           candidate.revisions == revisions;
  });
  return row == rows.rend() ? nullptr : &*row;
}

namespace {

// Whether the fingerprints suffice for the links that the cell needs.
bool FingerprintHasLink(const ProfileOutcomes& outcomes, const CellConfig& config) {
  return std::ranges::any_of(outcomes, [&](const ProfileOutcome& outcome) {
    return outcome.is_fingerprint() && outcome.config.workers > 1 &&
           outcome.config.link == config.measured_link();
  });
}

FoundProfile ProfileOfFile(const Store& store, const CellConfig& config) {
  const std::string& name = config.cluster;
  const ProfileOutcomes outcomes = MeasuredOf(store.profiles(), name);
  FoundProfile profile{ProfilesOf(outcomes, config), ""};
  if (profile.content.empty()) {
    const CellConfig like = MeasuredLike(outcomes, config);
    profile.missing = WhatIsMissing(
        store.profiles(), name, SubjectName(config),
        MeasureCommand(like, name) + (FingerprintHasLink(outcomes, config) ? " --ranks 1" : ""));
  }
  return profile;
}

}  // namespace

FoundProfile FindProfile(const Catalog& catalog, const Store& store,
                         const std::vector<TrialRow>& rows, const CellConfig& config,
                         const ProfileNeeds& needs, const std::string& system_hash) {
  FoundProfile profile;
  if (IsDeclared(store.profiles(), config.cluster)) {
    profile.content =
        DeclaredProfile(LoadDeclaredCluster(store.profiles(), config.cluster), config);
    return profile;
  }
  if (!IsOwnCluster(config.cluster)) return ProfileOfFile(store, config);
  ProfileOutcomes content;
  for (const auto& wanted : ProfileConfigsFor(config, needs)) {
    const TrialRow* row = FindTrial(catalog, rows, wanted, system_hash);
    if (row == nullptr) {
      profile.missing = fmt::format(
          "its profile is not measured yet: {}, {} rank(s) at once, link {}", wanted.workload,
          wanted.workers, wanted.link ? ToJson(wanted.link).dump() : "its own");
      return profile;
    }
    json outcome = ReadJsonFile(store.results() / row->directory / "outcome.json");
    outcome["config"] = ToJson(wanted);
    content.push_back(ProfileOutcomeOf(outcome, row->directory));
  }
  profile.content = std::move(content);
  return profile;
}

namespace {

std::string HashOfProfile(const ProfileOutcomes& profile) {
  // There were cells with these keys before profiles had hashes.
  constexpr std::string_view kCounted[] = {"data", "data_id", "weights", "weights_id", "evaluate"};
  json said = ToJson(profile);
  for (json& outcome : said)
    if (outcome["config"].is_object()) EraseLaterKeys(outcome["config"], kCounted);
  return ContentHash(said);
}

}  // namespace

System ModelledSystem(const CellConfig& config, const ProfileOutcomes& profile,
                      const System& machine) {
  System system;
  if (IsOwnCluster(config.cluster)) system = machine;
  system.cluster = config.cluster;
  system.profile_hash = HashOfProfile(profile);
  const std::string kind = KindOfAll(profile);
  if (kind != kMeasured) system.kind = kind;
  return system;
}

}  // namespace sparfuse::harness
