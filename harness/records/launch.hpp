// Describes a launch, a trial's "launch": the hosts of its ranks, the resources that ranks might
// use there, the bytes on the network, and the differences of clocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/records/node.hpp"

namespace sparfuse::harness {

// The resources of its host that a rank may use.
struct RankBinding {
  std::string host;
  std::string cores;                 // "0-3"
  std::string numa;                  // of these cores; "" if the kernel does not tell
  std::optional<int> visible_cards;  // that CUDA_VISIBLE_DEVICES names; nothing: all
  std::string card;                  // its place on the bus; "" without one
  std::string interface;             // that ranks are told to use; "": libraries choose
  std::optional<Node> node;          // of the rank that speaks for its host
  bool operator==(const RankBinding&) const = default;
};

// The same of all ranks, a list a key, in the order of ranks.
struct LaunchBinding {
  std::vector<std::string> hosts, cores, numa, card, interface;
  bool operator==(const LaunchBinding&) const = default;
};
LaunchBinding ColumnsOf(const std::vector<RankBinding>& ranks);

struct InterfaceBytes {
  std::uint64_t received = 0, sent = 0;
  bool operator==(const InterfaceBytes&) const = default;
};

// The bytes on the interfaces of a host during a launch.
struct HostTraffic {
  std::string interface;                        // as asked for; "": libraries choose
  std::map<std::string, InterfaceBytes> bytes;  // of interfaces that carried any
  std::vector<std::string> others;              // second interfaces that carried much
  bool operator==(const HostTraffic&) const = default;
};

// The same of all hosts, a list a key.
struct LaunchNetwork {
  std::string interface;
  std::vector<std::string> hosts;
  std::vector<std::map<std::string, InterfaceBytes>> bytes;
  std::vector<std::vector<std::string>> others;
  bool operator==(const LaunchNetwork&) const = default;
};
// Precondition: a host at least.
LaunchNetwork TrafficOfHosts(const std::vector<std::string>& hosts,
                             const std::vector<HostTraffic>& traffic);

// For each host against rank 0's clock: the offset at the launch's end, and its change.
struct LaunchClocks {
  std::vector<std::string> hosts;
  std::vector<double> offset_seconds, drift_ppm, drift_uncertainty_ppm, uncertainty_seconds;
  bool operator==(const LaunchClocks&) const = default;
};

// Rank 0 leaves them in the directory of the launch's first trial, with their real names.
inline constexpr const char* kHostRecord = "hosts.json";

struct LaunchHosts {
  std::optional<LaunchBinding> binding;
  std::vector<Node> nodes;  // counted
  std::optional<LaunchNetwork> network;
  std::optional<LaunchClocks> clocks;
  std::vector<std::string> warnings;
  bool operator==(const LaunchHosts&) const = default;
};

struct TrialLaunch : LaunchHosts {
  std::string id;                       // of its first trial, and its number there
  int trials = 0;                       // that shared it
  std::optional<double> start_seconds;  // of its processes, once for all
  std::string failed_on;                // the node at fault
  std::vector<std::string> left_out;    // nodes on which launches failed before
  bool operator==(const TrialLaunch&) const = default;
};

// Warnings about the hosts, a sentence each: traffic on second interfaces, host by host, and
// warnings of ranks.
std::vector<std::string> WarningsOf(const LaunchHosts& hosts);

nlohmann::json ToJson(const LaunchHosts& hosts);
nlohmann::json ToJson(const TrialLaunch& launch);
// Reads the file of this directory and removes it. Empty if the launch's ranks did not get that
// far, or died while they wrote it.
LaunchHosts TakeHostRecord(const std::filesystem::path& directory);
}  // namespace sparfuse::harness
