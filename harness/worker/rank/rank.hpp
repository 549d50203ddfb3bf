// Holds one rank of a live trial: its card, its communication, its threads, and the messages of
// ranks outside the steps. Trials of one launch share `loop`, `pool`, `device` and `compute`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/thread_pool.hpp"
#include "core/device/device.hpp"
#include "core/transport/progress.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

class LaunchRecord;

// The number of this process on its host, from mpirun, srun or Flux; `rank` if none gives it.
int LocalRank(int rank);

// The device on which the rank with this number on its host computes: the host itself, or a card.
// The card is this number modulo the number of cards that this process sees, which may differ from
// other ranks'. NCCL's set-up finds out whether two ranks have one card
// (core/transport/nccl/nccl.hpp). Throws Error{kUnsupported}, "this machine has no CUDA device:
// ...", with the reason.
//
// A worker of tests that is linked with the emulated device uses it instead of the host for all
// work on gradients; its trials' machine says so under "cards".
Device ChooseDevice(Place place, int local_rank);

struct Rank {
  const CellConfig& config;
  std::uint64_t seed;
  const std::filesystem::path& directory;
  ProgressLoop& loop;
  ThreadPool& pool;
  Device device = {};              // has gradients, parameters and kernels
  Stream compute = {};             // of it: the stream of forward, backward and update
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

// Every rank's values, in rank order; lengths may differ. Collective.
template <class Value>
std::vector<std::vector<Value>> GatherValues(const Rank& rank, std::span<const Value> own) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<std::vector<Value>> by_rank;
  for (const auto& bytes : rank.Gather(std::as_bytes(own))) {
    by_rank.emplace_back(bytes.size() / sizeof(Value));
    std::memcpy(by_rank.back().data(), bytes.data(), bytes.size());
  }
  return by_rank;
}

// Every rank's text, in rank order; bytes that are not UTF-8 are replaced. Collective.
std::vector<std::string> GatherTexts(const Rank& rank, const std::string& own);
// The texts as JSON, which records go by from rank to rank. Collective.
std::vector<nlohmann::json> GatherJson(const Rank& rank, const nlohmann::json& own);

// Every rank's record, in rank order. Collective.
template <class Record>
std::vector<Record> GatherRecords(const Rank& rank, const Record& own) {
  std::vector<Record> records;
  for (const nlohmann::json& each : GatherJson(rank, WriteRecord(own)))
    ReadRecord(each, KeyPlace("a rank's record"), records.emplace_back());
  return records;
}

// Prints, on rank 0, what is measured to the log, which the controller follows.
void SayMeasuring(const Rank& rank, const std::string& what);

// Measures single operations, links and the workload's backward pass, or a fingerprint, on all
// ranks at once; rank 0 leaves outcome.json.
void RunProfile(const Rank& rank);

// Writes outcome.json of rank 0, and private.json with the facts that do not belong in it. outcome:
// JSON, because each kind of trial has keys of its own.
void WriteOutcome(const std::filesystem::path& directory, const nlohmann::json& outcome,
                  PrivateFacts facts);

// The parts of an outcome that describe machine and software; names go into `facts`. MachineOf is
// collective.
Machine MachineOf(const Rank& rank, PrivateFacts& facts);
Software SoftwareOfWorker();

}  // namespace sparfuse::harness
