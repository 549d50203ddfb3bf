// Reads NCCL's own files: its Inspector's records, which measure links under load, and logs of
// NCCL_DEBUG=INFO, which measure nothing and state facts that a cluster's file otherwise declares.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/imported/imported_links.hpp"

namespace sparfuse::harness {

// The times of collectives of one size: for each the shortest over ranks.
struct InspectedSize {
  double bytes = 0;  // of a rank's message
  double least_us = 0, median_us = 0;
  int n = 0;
  // The factor by which waiting and sharing make it longer.
  double load() const { return median_us / least_us; }
};

struct InspectedCollective {
  LinkLog log;  // kind "measured", of the least times
  std::vector<InspectedSize> sizes;
};

struct Inspected {
  std::vector<InspectedCollective> collectives;  // all-reduces and all-gathers, by communicator
  std::vector<std::string> notes;                // the parts that were left out, and why
};

// Files of NCCL Inspector (NCCL_INSPECTOR_ENABLE=1, NCCL 2.28 and later), one for each process,
// plain or gzip. Only times that a kernel took on its device count (kernel_gpu). Throws
// Error{kConfig} naming file and line: for text that is not JSON, unknown versions, rates that do
// not follow from bytes and time, duplicate ranks.
Inspected ReadNcclInspector(const std::vector<std::string>& files);

// An algorithm that NCCL chose.
struct NcclChosen {
  std::string collective, algorithm, protocol;  // "AllReduce", "RING", "SIMPLE"
  double bytes = 0;
};

// The facts in a log of NCCL_DEBUG=INFO. If several ranks give one, the first counts.
struct NcclInfo {
  std::string file;
  std::string version;                         // "2.27.5", or ""
  int ranks = 0, nodes = 0, local_ranks = 0;   // 0: not said
  std::optional<int> channels, nvls_channels;  // of collectives
  std::vector<std::string> ways;               // "NET/IB/GDRDMA", "P2P/CUMEM", "SHM/direct"
  std::vector<NcclChosen> chosen;              // by size, once each
  std::vector<double> sizes;                   // bytes of all-reduces that were called
};

// Throws Error{kConfig} for a text without a line of NCCL's.
NcclInfo ReadNcclInfo(std::string_view text, const std::string& file);

// "ring/simple": what the model's NCCL chooses on the cluster for an all-reduce of so many bytes.
// Precondition: all_reduce = "nccl-*".
std::string ModelledAllReduce(const DeclaredCluster& cluster, const Topology& topology,
                              double bytes);

// Keys of the cluster's file that the log says, as lines of TOML, and notes on what the file says
// otherwise: ranks, ways that the host stages, algorithms that are not those modelled.
struct NcclInfoOnCluster {
  std::vector<std::string> lines, notes;
};
NcclInfoOnCluster CompareNcclInfo(const NcclInfo& info, const DeclaredCluster& cluster);

}  // namespace sparfuse::harness
