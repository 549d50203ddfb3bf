#include "harness/run/needed_profiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/catalog/config_keys.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

using nlohmann::json;

json ProfileConfig(const CatalogWorkload& workload, const json& workload_options,
                   const json& recipe, int batch_per_worker, int threads_per_worker, int ranks,
                   const json& link, const ProfileNeeds& needs) {
  json config = {{"kind", "profile"},
                 {"mode", link.is_null() ? "measured" : "emulated"},
                 {"workload", workload.name},
                 {"workload_options", workload_options},
                 {"recipe", recipe},
                 {"workers", ranks},
                 {"ranks_per_node", link.is_null() ? ranks : 1},
                 {"threads_per_worker", threads_per_worker},
                 {"batch_per_worker", batch_per_worker},
                 {"accumulation", 1},
                 {"transport", "mpi"},
                 {"link", link},
                 {"sparsifiers", needs.sparsifiers},
                 {"quantizers", needs.quantizers},
                 {"warmup_steps", needs.warmup_steps},
                 {"steps", needs.steps},
                 {"deadline_seconds", 60}};
  SetConfigValue(config, "device", needs.device);
  SetConfigValue(config, "precision", needs.precision);
  return config;
}

std::vector<json> ProfileConfigsFor(const Catalog& catalog, const json& config,
                                    const ProfileNeeds& needs) {
  const auto& workload =
      NeedEntry(catalog.workloads, "workload", config["workload"].get<std::string>());
  const int workers = config["workers"];
  std::set<int> ranks = {1};
  if (workers > 1) ranks.insert(2);
  if (config["cluster"] == "this-machine") {
    const int most = std::min(workers, needs.most_ranks);
    for (int count = 4; count <= most; count *= 2) ranks.insert(count);
    ranks.insert(most);
  }
  ProfileNeeds here = needs;
  here.device = ConfigValue(config, "device");
  here.precision = ConfigValue(config, "precision");
  std::vector<json> configs;
  for (const int count : ranks) {
    configs.push_back(ProfileConfig(workload, config["workload_options"], config["recipe"],
                                    config["batch_per_worker"], config["threads_per_worker"], count,
                                    count > 1 ? config["link"] : json(), here));
  }
  return configs;
}

ProfileNeeds NeedsOf(const Experiment& experiment) {
  ProfileNeeds needs;
  std::set<std::string> sparsifiers;
  std::set<std::string> quantizers;
  for (const auto& part : experiment.parts) {
    for (const auto& cell : part.cells) {
      if (cell.config["mode"] != "modelled") {
        needs.most_ranks = std::max(needs.most_ranks, cell.config["workers"].get<int>());
      }
      sparsifiers.insert(cell.config.value("sparsifier", "none"));
      quantizers.insert(cell.config.value("/method_options/payload_dense"_json_pointer, "indexed"));
    }
  }
  sparsifiers.erase("none");
  quantizers.erase("indexed");
  needs.sparsifiers.assign(sparsifiers.begin(), sparsifiers.end());
  needs.quantizers.assign(quantizers.begin(), quantizers.end());
  return needs;
}

const TrialRow* FindTrial(const Catalog& catalog, const std::vector<TrialRow>& rows,
                          const json& config, const std::string& system_hash) {
  const std::string hash = ConfigHash(config);
  const json revisions = RevisionsOf(catalog, config);
  const auto row = std::find_if(rows.rbegin(), rows.rend(), [&](const TrialRow& candidate) {
    return candidate.counts() && candidate.config_hash == hash &&
           candidate.system_hash == system_hash && candidate.revisions == revisions;
  });
  return row == rows.rend() ? nullptr : &*row;
}

namespace {

Profile ProfileOfFile(const Store& store, const json& config) {
  const std::string name = config["cluster"];
  const auto file = store.profiles().File(name + ".json");
  Profile profile{ProfilesOf(ReadProfiles(file), config), ""};
  if (profile.content.empty()) {
    profile.missing = fmt::format("{} has no profile of {}; measure it with `{}`", file.string(),
                                  SubjectName(config), MeasureCommand(config, name));
  }
  return profile;
}

}  // namespace

Profile FindProfile(const Catalog& catalog, const Store& store, const std::vector<TrialRow>& rows,
                    const json& config, const ProfileNeeds& needs, const std::string& system_hash) {
  Profile profile;
  if (IsDeclared(store.profiles(), config["cluster"])) {
    profile.content =
        DeclaredProfile(LoadDeclaredCluster(store.profiles(), config["cluster"]), config);
    return profile;
  }
  if (!IsOwnCluster(config["cluster"])) return ProfileOfFile(store, config);
  json content = json::array();
  for (const auto& wanted : ProfileConfigsFor(catalog, config, needs)) {
    const TrialRow* row = FindTrial(catalog, rows, wanted, system_hash);
    if (row == nullptr) {
      profile.missing =
          fmt::format("its profile is not measured yet: {}, {} rank(s) at once, link {}",
                      wanted["workload"].get<std::string>(), wanted["workers"].get<int>(),
                      wanted["link"].is_null() ? "its own" : wanted["link"].dump());
      return profile;
    }
    json outcome = ReadJsonFile(store.results() / row->directory / "outcome.json");
    outcome["config"] = wanted;
    content.push_back(std::move(outcome));
  }
  profile.content = std::move(content);
  return profile;
}

json ModelledSystem(const json& config, const json& profile, const json& machine) {
  json system = {{"cluster", config["cluster"]}, {"profile_hash", ContentHash(profile)}};
  if (IsOwnCluster(config["cluster"])) system["machine"] = machine;
  return system;
}

}  // namespace sparfuse::harness
