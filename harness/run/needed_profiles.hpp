// Profiles that modelled trials on this machine need: which trials measure them, and what is there.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// What the profiles of an experiment must cover.
struct ProfileNeeds {
  int most_ranks = 2;  // at once: the most workers of a live cell, at least two
  std::vector<std::string> sparsifiers = {};  // of its cells, sorted
  std::vector<std::string> quantizers = {};   // of its cells' dense tensors, sorted
  int warmup_steps = 4;                       // of the backward pass
  int steps = 16;                             // timed, with hooks and as often without
  std::string device = "cpu";
  std::string precision = "fp32";
};
ProfileNeeds NeedsOf(const Experiment& experiment);

// The config of the trial that measures `workload`'s backward pass, the machine's kernels, the
// selections and encodings of `needs` and the link with `ranks` on the machine at once. link: null
// for the machine's own, or a shape.
nlohmann::json ProfileConfig(const CatalogWorkload& workload,
                             const nlohmann::json& workload_options, const nlohmann::json& recipe,
                             int batch_per_worker, int threads_per_worker, int ranks,
                             const nlohmann::json& link, const ProfileNeeds& needs);

// The profile trials that `config` (modelled, of an own cluster) needs, of its device and
// precision: one rank alone; two over its link; and on "this-machine" 4, 8, ... up to its workers,
// at most `needs.most_ranks` at once.
std::vector<nlohmann::json> ProfileConfigsFor(const Catalog& catalog, const nlohmann::json& config,
                                              const ProfileNeeds& needs);

// The newest trial in `rows` that counts, of this config, `system_hash` and current revisions; null
// if there is none.
const TrialRow* FindTrial(const Catalog& catalog, const std::vector<TrialRow>& rows,
                          const nlohmann::json& config, const std::string& system_hash);

struct Profile {
  nlohmann::json content;  // an array of profile outcomes, each with its "config"; null: missing
  std::string missing;     // what is not there yet
};

// The profile of `config` from the newest trials in `rows` that count, have `system_hash` and
// current revisions; or from the named file of the store's profiles, what it has of the config's
// workload, batch and threads.
Profile FindProfile(const Catalog& catalog, const Store& store, const std::vector<TrialRow>& rows,
                    const nlohmann::json& config, const ProfileNeeds& needs,
                    const std::string& system_hash);

// What stands in the place of a machine for a modelled trial: {"cluster", "profile_hash", and for
// own clusters this machine's description}.
nlohmann::json ModelledSystem(const nlohmann::json& config, const nlohmann::json& profile,
                              const nlohmann::json& machine);

}  // namespace sparfuse::harness
