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
#include "harness/run/live/launch/launcher.hpp"

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

// Throws Error{kConfig} if the cell does not fit the method: an emulated link although ranks may be
// on other hosts, or a hostfile without room for the ranks.
void CheckMayLaunch(const CellConfig& config, const LaunchMethod& method);

// The number of nodes with its ranks.
int NodesOf(const CellConfig& config);

// The worker itself starts the ranks on this host, without mpirun: threads, or processes over TCP.
bool StartsItsRanks(const CellConfig& config, const LaunchMethod& method);
// Before their number, on a command line of the worker that starts processes.
inline constexpr const char* kRanksArgument = "--ranks";

// environment: the result of LaunchEnvironment; ranks on other hosts get it through the command.
// The ranks of a host are consecutive, config.ranks_per_node each, in the numbering of the
// topology. Ranks that are threads of one process start here with any method.
std::vector<std::string> LaunchCommand(const LaunchedWork& work, const LaunchMethod& method,
                                       const Environment& environment);

// The variables that a launch gets in addition to the controller's environment: the sizes of the
// libraries' thread pools, according to the trial; a setting of cuBLAS for reproducible results;
// the network interface, if one is named; the facts that every rank checks first
// (core/transport/world/world_check.hpp); and, on other hosts, its longest lifetime.
Environment LaunchEnvironment(const LaunchedWork& work, const LaunchMethod& method);

// The seconds after which a rank on another host ends itself. The launcher cannot always end it,
// because a node whose daemon died passes on no signal.
inline constexpr const char* kLifetimeVariable = "SPARFUSE_LIFETIME_SECONDS";

// The command that ends the ranks of a launch in addition to its launcher (LaunchRequest::ender),
// or nothing.
std::vector<std::string> LaunchEnder(const LaunchMethod& method, const std::string& nonce);

// The launch of this work, which nothing but its time ends early. more: variables that ranks need
// besides LaunchEnvironment's. folder: for its log, and its record of a SessionFolder.
LaunchRequest RequestOf(const LaunchedWork& work, const LaunchMethod& method,
                        const Environment& more, const std::filesystem::path& folder);

// As a shell takes it: "NAME=VALUE program 'an argument'".
std::string ShellLine(const Environment& environment, std::span<const std::string> command);

// The action that the end of a running launch's log names, or "".
std::string WhatItDoes(const std::filesystem::path& log);

}  // namespace sparfuse::harness
