// Makes the command and the environment of a launch, and tells from its log the present work of a
// running one.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/cell_config.hpp"
#include "harness/run/live/launch/launch_method.hpp"

namespace sparfuse::harness {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Live trials that share a launch.
struct LaunchedWork {
  const CellConfig& config;  // of any of them
  const std::filesystem::path& worker;
  std::span<const std::filesystem::path> directories;  // of the trials
  double timeout_seconds = 0;                          // of the launch
  std::string nonce;                                   // that no other launch has
};

// Throws Error{kConfig} naming what does not go with the method: a link that is emulated, where
// ranks may be on other hosts; a hostfile whose hosts have no room for the ranks.
void CheckMayLaunch(const CellConfig& config, const LaunchMethod& method);

// That its ranks are on where nodes are several.
int NodesOf(const CellConfig& config);

// The worker itself starts the ranks on this host, without mpirun: threads, or processes over TCP.
bool StartsItsRanks(const CellConfig& config, const LaunchMethod& method);
// Before their number, on a command line of the worker that starts processes.
inline constexpr const char* kRanksArgument = "--ranks";

// environment: LaunchEnvironment's, which ranks on other hosts get by the command. Ranks of a host
// are consecutive, config.ranks_per_node each, as the topology numbers them; ranks that are threads
// of one process start here, whatever the method.
std::vector<std::string> LaunchCommand(const LaunchedWork& work, const LaunchMethod& method,
                                       const Environment& environment);

// What a launch gets on top of the controller's environment: the thread pools that libraries bring,
// sized to what the trial is given, and what they compute with; the network interface, where one is
// named; what every rank checks first (core/transport/world/world_check.hpp); and on other hosts
// how long it may live.
Environment LaunchEnvironment(const LaunchedWork& work, const LaunchMethod& method);

// Seconds after which a rank on another host than the controller's is killed from within. Its
// launcher cannot always do so: a node whose daemon died passes no signal on.
inline constexpr const char* kLifetimeVariable = "SPARFUSE_LIFETIME_SECONDS";

// What ends the ranks of a launch beside its launcher (LaunchRequest::ender), or nothing.
std::vector<std::string> LaunchEnder(const LaunchMethod& method, const std::string& nonce);

// As a shell takes it: "NAME=VALUE program 'an argument'".
std::string ShellLine(const Environment& environment, std::span<const std::string> command);

// What the end of a running launch's log says it does, or "".
std::string WhatItDoes(const std::filesystem::path& log);

}  // namespace sparfuse::harness
