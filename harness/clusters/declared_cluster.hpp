// Reads clusters that nobody here has: files of results/profiles whose numbers are declared, each
// with its source, and calibrated on a published bar where the file says so. They yield what has
// the form of a measured profile, so that the model does not know the difference.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/catalog/cell_config.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/files/toml_file.hpp"

namespace sparfuse::harness {

// A number that a cluster's file declares, or that calibration found.
struct DeclaredInput {
  std::string name;  // "inter_node_gbps"
  double value = 0;  // in the unit that the name ends with
  std::string kind;  // "published text", "data sheet", "declared", "calibrated"
  std::string source;
  std::string group;  // the key of `inputs` that scales it
};

// A bar of a published figure that calibration reads, by its columns in results/published.
struct CalibrationBar {
  std::string paper, artifact, method;
  std::string name() const { return paper + "/" + artifact + "/" + method; }
};

// Calibration result for a family of workloads, fitted to the published bar of one of them.
struct ReferenceWorkload {
  std::vector<std::string> families;  // of workloads that it stands for
  std::string workload;
  int batch_per_worker = 0;
  int workers = 0;
  std::string batch_source;
  CalibrationBar bar;
  // The bar, seconds a step.
  double forward_seconds = 0, backward_seconds = 0, sparsify_seconds = 0, exposed_seconds = 0;
  // Solved: what the host adds to an exchange of a tensor of mean size, so that a modelled step of
  // `bar.method` on the calibration's cluster exposes as much communication, decompression
  // included, as the bar says. A layer-wise bar cannot tell which part of it goes with the exchange
  // and which with what it carries: the input host_carried_share says.
  double host_seconds = 0;
};

struct DeclaredCluster {
  std::string name, title, source, hardware;
  int nodes = 1, ranks_per_node = 1;
  std::vector<DeclaredInput> inputs;
  std::vector<ReferenceWorkload> references;
  // Selection of the bars' sparsifier, from all bars together: seconds = once + each * elements.
  double selection_seconds_once = 0, selection_seconds_each = 0;
  double reference_memory_gbytes = 0;  // of the calibration's cluster
  nlohmann::json selection_costs;      // by sparsifier: its time as a multiple of the bars'

  int ranks() const { return nodes * ranks_per_node; }
  double Value(std::string_view input) const;
  double ValueOr(std::string_view input, double otherwise) const;
  // Seconds of forward and backward here for one there.
  double ComputeRatio() const;
  // Seconds of a selection beside backward for one alone; 1 where the file does not say.
  double SideSlowdown() const;
  // What each further message of a rank's round costs; 0 where the file does not declare it.
  double MessageMicroseconds() const;
  std::vector<DeclaredInput> CalibratedInputs(const ReferenceWorkload& reference) const;
  const ReferenceWorkload& ReferenceOf(const std::string& workload) const;
};

// The groups of inputs that a cell's `inputs` may scale: compute (seconds of forward and backward),
// sparsify (seconds of selections), host_overhead (seconds an exchange), host_carried (the
// share of these that goes with what an exchange carries, at most 1), latency (seconds a round),
// bandwidth (of links), memory (bandwidth of the device's memory: packing, decompression, update),
// kernel (seconds of the smallest kernel), host (bandwidth to and on the host: offloaded
// selections), side (what selections take beside backward, at least as long as alone).
const std::vector<std::string>& InputGroups();

bool IsDeclared(const ProfileFolders& profiles, const std::string& cluster);

// Reads, checks and calibrates. Only the WFBP bars of SAFusion's Fig. 15 may calibrate; numbers of
// other published figures are refused as inputs: they are what is to be predicted. Throws
// Error{kConfig} naming file, line, key, value and what was expected. Cost: some simulated steps,
// about 0.1 s; done once a file.
const DeclaredCluster& LoadDeclaredCluster(const ProfileFolders& profiles,
                                           const std::string& cluster);
// The same of a file that is read already; `profiles` has the cluster that it may refer to.
DeclaredCluster ParseDeclaredCluster(const TomlFile& file, const ProfileFolders& profiles);

// An array of one outcome in the form of a profile trial's, of the cell's workload, batch and
// `inputs`: links by class, what was calibrated (key "calibration") and all inputs (key "inputs").
nlohmann::json DeclaredProfile(const DeclaredCluster& cluster, const CellConfig& config);

}  // namespace sparfuse::harness
