// Lists what a declared cluster may state.
#include <algorithm>
#include <array>

#include "harness/clusters/declared_cluster.hpp"

namespace sparfuse::harness {
namespace {

constexpr Range kPositive{1e-9, 1e9};
constexpr Range kTimes{0, 1e9};
constexpr Range kShares{1e-4, 1};
constexpr Range kSlowdowns{1, 100};
constexpr Range kCards{1, 64};

}  // namespace

std::span<const InputSpec> InputSpecs() {
  static const std::array<InputSpec, 25> kSpecs = {{
      {"inter_node_gbps", "bandwidth", kPositive, {}, "of one network card, each way"},
      {"network_cards", "bandwidth", kCards, 1, "of a node, which its ranks share"},
      {"inter_node_efficiency", "bandwidth", kShares, 1,
       "what protocol and staging leave of inter_node_gbps", true},
      {"host_path_gbps", "bandwidth", kPositive, 1e9,
       "of a node's way to its network cards: what it bounds beside their rate"},
      {"inter_node_us", "latency", kTimes, {}, "start-up of a hop between nodes"},
      {"intra_node_gbps", "bandwidth", kPositive, {}, "between two devices of a node, each way"},
      {"intra_node_efficiency", "bandwidth", kShares, 1, "what is left of intra_node_gbps", true},
      {"intra_node_us", "latency", kTimes, {}, "start-up of a hop within a node"},
      {"message_us", "latency", kTimes, 0,
       "each message beyond the first that a rank sends at once", true},
      {"memory_gbytes_per_s", "memory", kPositive, {}, "of the device"},
      {"kernel_us", "kernel", kTimes, {}, "any kernel on the device, however small"},
      {"compute_tflops", "compute", kPositive, 0,
       "that forward and backward reach, two operations a multiply-accumulate, for workloads of "
       "which no [[compute]] or [[reference]] is"},
      {"compute_ratio", "compute", kPositive, 1,
       "seconds of forward and backward here for one on the reference_cluster"},
      {"host_link_gbytes_per_s", "host", kPositive, {}, "from the device to its host"},
      {"host_memory_gbytes_per_s", "host", kPositive, {}, "of the host"},
      {"exchange_host_us",
       "host_overhead",
       kTimes,
       {},
       "the host prepares an exchange, one after another, beside the network",
       true},
      {"exchange_host_us_a_rank", "host_overhead", kTimes, 0, "the same for each rank", true},
      {"exchange_host_ns_an_element", "host_staging", kTimes, 0,
       "the host moves what an exchange covers, in line with the network", true},
      {"update_host_us_a_tensor", "host_overhead", kTimes, 0,
       "of the optimizer, which one card hides and a distributed step exposes", true},
      {"selection_us", "sparsify", kTimes, 0, "a selection, however small, of a cost of 1"},
      {"selection_ns_an_element", "sparsify", kTimes, 0, "of a selection of a cost of 1"},
      {"coding_in_step", "sparsify", kShares, 1,
       "what selections and encodings take within a step of what they take timed alone"},
      {"side_slowdown", "side", kSlowdowns, 1, "what a selection beside backward takes"},
      {"overlap",
       "overlap",
       {0, 1},
       1,
       "what of an exchange goes on while its ranks compute; 0: none of it before backward ends",
       true},
      {"compute_slowdown", "side", kSlowdowns, 1,
       "what the device computes takes while an exchange is under way", true},
  }};
  return kSpecs;
}

std::span<const InputKind> InputKinds() {
  static constexpr std::array<InputKind, 5> kKinds = {{{"measured", 1.05},
                                                       {"imported", 1.05},
                                                       {"published text", 1.1},
                                                       {"data sheet", 1.25},
                                                       {"declared", 2}}};
  return kKinds;
}

const std::vector<std::string>& InputGroups() {
  static const std::vector<std::string> kGroups = [] {
    std::vector<std::string> groups;
    for (const InputSpec& spec : InputSpecs()) {
      if (std::ranges::find(groups, spec.group) == groups.end()) groups.emplace_back(spec.group);
    }
    return groups;
  }();
  return kGroups;
}

}  // namespace sparfuse::harness
