// Finds the profiles that modelled trials on this machine need: the trials that measure them, and
// the profiles in the store.
#pragma once

#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/records/node.hpp"
#include "harness/records/profile.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// The coverage that the profiles of an experiment need.
struct ProfileNeeds {
  int most_ranks = 2;  // at once: the most workers of a live cell, at least two
  std::vector<std::string> sparsifiers = {};  // of its cells, sorted
  std::vector<std::string> quantizers = {};   // of its cells' dense tensors, sorted
  int warmup_steps = 4;                       // of the backward pass
  int steps = 16;                             // timed, with hooks and as often without
  // The workload that they measure.
  std::string workload = {};
  Options workload_options = {}, recipe = {};
  int batch_per_worker = 1, threads_per_worker = 1;
  Place device = Place::kCpu;
  Precision precision = Precision::kFp32;
};
ProfileNeeds NeedsOf(const Experiment& experiment);

// The config of the trial that measures, with `ranks` on the machine at once, the workload's
// backward pass, the machine's kernels, the selections and encodings of `needs`, and the link.
// link: nothing for the machine's own, or a shape. If it has links within nodes, a node has
// `ranks_per_node` ranks, at most `ranks`.
CellConfig ProfileConfig(const ProfileNeeds& needs, int ranks, const std::optional<LinkShape>& link,
                         int ranks_per_node);

// The profile trials that `config` (modelled, of an own cluster) needs, with its device and
// precision: one rank alone; two over its link; two nodes if it has links within them; and on
// "this-machine" 4, 8, ... up to its workers, at most `needs.most_ranks` at once.
std::vector<CellConfig> ProfileConfigsFor(const CellConfig& config, const ProfileNeeds& needs);

// The newest trial in `rows` that counts, of this config, `system_hash` ("": any) and current
// revisions; null if there is none.
const TrialRow* FindTrial(const Catalog& catalog, const std::vector<TrialRow>& rows,
                          const CellConfig& config, const std::string& system_hash);

struct FoundProfile {
  ProfileOutcomes content;  // empty: missing
  std::string missing;      // the missing measurements
};

// The profile of `config`. It comes from the newest trials in `rows` that count and have
// `system_hash` and current revisions. Or it comes from the named file of the store's profiles: its
// outcomes with the config's workload, batch and threads.
FoundProfile FindProfile(const Catalog& catalog, const Store& store,
                         const std::vector<TrialRow>& rows, const CellConfig& config,
                         const ProfileNeeds& needs, const std::string& system_hash);

// The system of a modelled trial: the profile. For own clusters it includes the machine of the
// measurement, else the kind of the file of profiles if that was not measured.
System ModelledSystem(const CellConfig& config, const ProfileOutcomes& profile,
                      const System& machine);

}  // namespace sparfuse::harness
