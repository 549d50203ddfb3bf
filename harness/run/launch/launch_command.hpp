// Says how a launch is started, and what it says it does.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/cell_config.hpp"
#include "harness/run/launch/launch_method.hpp"

namespace sparfuse::harness {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Live trials that share a launch.
struct LaunchedWork {
  const CellConfig& config;  // of any of them
  const std::filesystem::path& worker;
  std::span<const std::filesystem::path> directories;  // of the trials
  double timeout_seconds = 0;                          // of the launch
};

// Throws Error{kConfig} naming what does not go with the method: a link that is emulated, where
// ranks may be on other hosts; a hostfile whose hosts have no room for the ranks.
void CheckMayLaunch(const CellConfig& config, const LaunchMethod& method);

// environment: LaunchEnvironment's, which ranks on other hosts get by the command. Ranks of a host
// are consecutive, config.ranks_per_node each, as the topology numbers them; ranks that are threads
// of one process start here, whatever the method.
std::vector<std::string> LaunchCommand(const LaunchedWork& work, const LaunchMethod& method,
                                       const Environment& environment);

// What a launch gets on top of the controller's environment: the thread pools that libraries bring,
// sized to what the trial is given, and what they compute with; the network interface, where one is
// named; and what every rank checks first (core/transport/world/world_check.hpp), with a nonce that
// no other launch has.
Environment LaunchEnvironment(const CellConfig& config, const LaunchMethod& method,
                              const std::string& nonce);

// As a shell takes it: "NAME=VALUE program 'an argument'".
std::string ShellLine(const Environment& environment, std::span<const std::string> command);

// What the end of a running launch's log says it does, or "".
std::string WhatItDoes(const std::filesystem::path& log);

}  // namespace sparfuse::harness
