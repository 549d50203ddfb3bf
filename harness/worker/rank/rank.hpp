// Holds one rank of a live trial: its communication, its threads, and what ranks tell one another
// outside the steps. Trials of one launch share `loop`, `pool`, `device` and `compute`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/transport/progress.hpp"
#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

class LaunchRecord;

struct Rank {
  const CellConfig& config;
  std::uint64_t seed;
  const std::filesystem::path& directory;
  ProgressLoop& loop;
  ThreadPool& pool;
  Device device = {};              // where gradients, parameters and kernels are
  Stream compute = {};             // of it: what forward, backward and update run on
  LaunchRecord* record = nullptr;  // of the launch

  int rank() const noexcept { return loop.rank(); }
  int size() const noexcept { return loop.size(); }

  // All of these are collective over the world and blocking.
  void BroadcastFromZero(std::span<std::byte> data) const;
  // Element-wise maximum.
  std::vector<std::int64_t> Max(std::vector<std::int64_t> values) const;
  // Every rank's bytes, in rank order; lengths may differ.
  std::vector<std::vector<std::byte>> Gather(std::span<const std::byte> own) const;
  void Synchronise() const;
};

// Every rank's value, in rank order; bytes that are not UTF-8 are replaced. Collective.
std::vector<nlohmann::json> GatherJson(const Rank& rank, const nlohmann::json& own);

// Measures single operations, links and the workload's backward pass, or a fingerprint, on all
// ranks at once; rank 0 leaves outcome.json.
void RunProfile(const Rank& rank);

// outcome.json of rank 0, written beside and renamed.
void WriteOutcome(const std::filesystem::path& directory, const nlohmann::json& outcome);

// The parts of an outcome that say where and with what it was obtained; collective.
nlohmann::json MachineOf(const Rank& rank);
nlohmann::json SoftwareOfWorker();

}  // namespace sparfuse::harness
