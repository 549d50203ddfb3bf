// Says how a launch is started, and what it says it does.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/cell_config.hpp"

namespace sparfuse::harness {

// Of live trials that share a launch: `config` is that of any of them. hostfile: of mpirun, whose
// hosts get config.ranks_per_node ranks each, one host after another; "": all ranks are started
// here.
std::vector<std::string> LaunchCommand(const CellConfig& config,
                                       const std::filesystem::path& worker,
                                       std::span<const std::filesystem::path> directories,
                                       const std::filesystem::path& hostfile = {});

// The thread pools that libraries bring, sized to what the trial is given, and what they compute
// with.
std::vector<std::pair<std::string, std::string>> ThreadEnvironment(const CellConfig& config);

// What the end of a running launch's log says it does, or "".
std::string WhatItDoes(const std::filesystem::path& log);

}  // namespace sparfuse::harness
