#include "harness/run/launch/launch_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "harness/run/progress.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

namespace {

// Ranks of a host are consecutive, as the topology numbers them. Other hosts have no environment
// of this process but what is named.
void AddHosts(const CellConfig& config, const fs::path& hostfile,
              std::vector<std::string>& command) {
  command.insert(command.end(),
                 {"--hostfile", hostfile.string(), "--map-by",
                  "ppr:" + std::to_string(config.ranks_per_node) + ":node", "--rank-by", "slot"});
  for (const auto& [name, value] : ThreadEnvironment(config))
    command.insert(command.end(), {"-x", name});
  if (std::getenv("LD_LIBRARY_PATH") != nullptr)
    command.insert(command.end(), {"-x", "LD_LIBRARY_PATH"});
}

}  // namespace

std::vector<std::string> LaunchCommand(const CellConfig& config, const fs::path& worker,
                                       std::span<const fs::path> directories,
                                       const fs::path& hostfile) {
  std::vector<std::string> command;
  if (config.transport != Transport::kThreads) {  // NCCL's ranks find one another over MPI
    command.push_back("mpirun");
    if (::geteuid() == 0) command.push_back("--allow-run-as-root");
    if (hostfile.empty()) command.push_back("--oversubscribe");
    for (const char* option : {"--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"})
      command.push_back(option);
    if (!hostfile.empty()) AddHosts(config, hostfile, command);
    command.insert(command.end(), {"-np", std::to_string(config.workers)});
  }
  command.push_back(worker.string());
  for (const fs::path& directory : directories) command.push_back(directory.string());
  return command;
}

std::vector<std::pair<std::string, std::string>> ThreadEnvironment(const CellConfig& config) {
  const std::string threads = std::to_string(config.threads_per_worker);
  std::vector<std::pair<std::string, std::string>> environment;
  for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}) {
    environment.emplace_back(name, threads);
  }
  // cuBLAS then computes the same bits in every run, whatever else the card does.
  if (config.device == Place::kCuda && config.kind == TrialKind::kConvergence)
    environment.emplace_back("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  return environment;
}

std::string WhatItDoes(const fs::path& log) {
  constexpr std::streamoff kLooked = 1 << 16;  // the log may be as long as it likes
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kLooked));
  std::string last;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kMeasuringLine)) last = line.substr(std::strlen(kMeasuringLine));
  }
  return last;
}

}  // namespace sparfuse::harness
