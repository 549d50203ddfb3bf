// Takes over what the ranks of a launch recorded of their hosts.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sparfuse::harness {

// Rank 0 leaves it in the directory of the launch's first trial.
inline constexpr const char* kHostRecord = "hosts.json";

// What interfaces of each host carried (DescribeTraffic of each), as trials keep it: {"interface",
// "hosts", "bytes", "others"}, the last three lists in the order of hosts.
nlohmann::json TrafficOfHosts(const std::vector<std::string>& hosts,
                              const std::vector<nlohmann::json>& traffic);

// Adds to `launch` what rank 0 recorded ("binding", "nodes", "network", "clocks", "warnings") and
// removes the file. Of a launch whose ranks did not get that far, what `here` tells of this host is
// its network.
void TakeHostRecord(const std::filesystem::path& directory, const nlohmann::json& here,
                    nlohmann::json& launch);

// What a user should know of the hosts, a sentence each: second interfaces with traffic, host by
// host, and what ranks warned of.
std::vector<std::string> WarningsOfHosts(const nlohmann::json& launch);

}  // namespace sparfuse::harness
