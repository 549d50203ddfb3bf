// Makes the model's inputs from a trace: a model table with its times, forward and backward of a
// step, the host's times, and links under load. Joins a trace's tensors with the table of a model,
// and takes off the profiler's own cost.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/traces/trace_facts.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {

// As typed.
struct TraceImport {
  std::vector<std::string> files;  // of one training, a rank each; the first one's times count
  TraceOptions options;
  std::string workload;           // "table:FILE.json" that gives names and macs; or ""
  std::string name;               // of the table that is made; "": the given one's, or the file's
  int batch = 0;                  // samples of a rank's step, which a trace does not say
  std::optional<double> step_ms;  // measured without the profiler
  std::string alone;              // a trace of the same step on one rank; or ""
  std::string torch;              // the version, which a trace does not say; or ""
  bool accept_spread = false;     // import steps that differ more than threefold
  std::string reference;          // the method of the traced step, which becomes a reference; or ""
};

// The traced step of several ranks, as a [[reference]] has it.
struct TracedReference {
  std::string method;
  int workers = 0;
  double step_ms = 0;
  double exposed_ms = 0;  // 0: none
  double spread = 1;
};

// The results of a trace on a cluster.
struct TracedModel {
  std::vector<TraceFacts> ranks;
  std::optional<TransferFacts> transfers;
  std::string name;                        // of the table
  nlohmann::ordered_json table;            // as its file
  double forward_ms = 0, backward_ms = 0;  // with what is left of the step in forward
  double step_ms = 0;                      // of ranks.front(), or as it was given; 0: unknown
  bool step_measured = false;              // it was given: without the profiler
  double spread = 1;
  int batch = 0;
  std::vector<DeclaredInput> inputs;
  std::vector<LinkLog> links;  // at most one
  std::optional<TracedReference> reference;
  std::string source;  // "rank0.json.gz sha256 ..., steps ..."
  std::vector<std::string> corrections, notes;
  bool host_bound = false;
  const TraceFacts& facts() const { return ranks.front(); }
};

// The tensors of a table for those of a trace: [tensors of the trace] positions in the table.
struct JoinedTensors {
  std::vector<std::size_t> positions;
  std::vector<std::string> notes;
};

// Joins by position if the shapes agree in order; by shape if they agree in number; else after
// leaving out unused tensors. Without shapes it joins by position, if the exchanges confirm it:
// their elements are sums of neighbouring tensors. Throws Error{kConfig} naming both files and the
// difference.
JoinedTensors JoinTensors(const TraceFacts& facts, std::span<const workloads::LayerTensor> table,
                          const std::string& table_file);

// Reads the files, joins and corrects. Throws Error{kConfig} as FactsOf, TransfersOf and
// JoinTensors; for a step_ms that does not fit this step; for steps that differ too much.
TracedModel ModelOfTrace(const DeclaredCluster& cluster, const TraceImport& asked);

// "steps ProfilerStep#5 to ProfilerStep#6": the used steps, which are neighbours.
std::string StepsText(const TraceFacts& facts);

// The exchanges of the group as a log of links on a cluster with `ranks_per_node`; none if no
// exchange is useful. Throws Error{kConfig} for a group with part of one node and other nodes.
std::vector<LinkLog> LinkLogsOf(const std::vector<TraceFacts>& ranks, int ranks_per_node);

// All that came of it, for results/profiles/CLUSTER.trace.json.
nlohmann::ordered_json TraceRecord(const TracedModel& model);

enum class StatedInputs : std::uint8_t { kStay, kReplaced };

// A cluster's file with a trace's numbers between two marked lines, and the numbers that were left
// out.
struct ClusterWithTrace {
  std::string text;
  std::vector<DeclaredInput> stated;  // the file has them itself: they stay (kStay)
};

// `text`: the cluster's file; the block of an earlier import of a trace is replaced. `table`: the
// table's path from the cluster's file. Throws Error{kConfig} if the block was edited.
ClusterWithTrace WithTrace(std::string text, const std::string& file, const TracedModel& model,
                           const ImportedLinks& links, const std::string& table,
                           StatedInputs stated);

// A trace's numbers on a cluster, in files.
struct TracedCluster {
  DeclaredCluster cluster;
  ImportedLinks links;
  std::vector<DeclaredInput> stated;          // kept as the cluster's file has them
  std::string workload;                       // as cells name it
  std::filesystem::path file, table, record;  // of the cluster, the model table, all facts
  // The modelled step of the traced training, dense, with the same number of ranks.
  double modelled_ms = 0;
};

// A dense step, for Modelled.
ReferenceStep DenseStep(const std::string& workload, int batch, int workers);

// Writes the cluster's file with the trace's block, its model table and all facts into `folder`,
// where profiles.Behind(folder) finds them. Throws Error{kConfig} as WithTrace, and if the result
// would not be a cluster.
TracedCluster PlaceTrace(const ProfileFolders& profiles, const std::string& cluster,
                         const TracedModel& model, StatedInputs stated,
                         const std::filesystem::path& folder);

}  // namespace sparfuse::harness
