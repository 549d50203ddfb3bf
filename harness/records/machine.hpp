// Describes the surroundings of a trial's measurement: its machine's state, its software and its
// source.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

struct CardClock {
  std::optional<unsigned> now_mhz, max_mhz;
  std::optional<unsigned> application_mhz;  // if somebody set another than the default
  bool operator==(const CardClock&) const = default;
};

// An empty member is unknown: the card does not tell.
struct CardState {
  int index = 0;  // the management library's
  std::string name, uuid, pci;
  CardClock sm_clock, memory_clock;
  std::optional<std::vector<std::string>> held_down_by;
  std::optional<bool> ecc;
  std::optional<double> power_limit_watts;
  std::optional<bool> mig;
  bool operator==(const CardState&) const = default;
};

struct CardPair {
  std::vector<int> cards;  // two indices
  std::string kind;        // GpuLink's (harness/machine/nvml.hpp)
  bool operator==(const CardPair&) const = default;
};

// The cards of rank 0's host while the trial runs.
struct CardStates {
  std::string driver, cuda;
  std::vector<CardState> cards;
  std::vector<CardPair> topology;
  bool operator==(const CardStates&) const = default;
};

// A measured machine, or, for a modelled trial on a declared cluster, the source of the
// declaration.
struct Machine {
  std::string hardware, source;        // of a declared cluster alone
  std::vector<std::string> placement;  // the host of each rank
  std::string communication_threads;   // their priority
  unsigned cores = 0;                  // of rank 0's host
  std::string kernels;                 // the instructions that kernels of the host use
  int cuda_devices = 0;
  std::vector<std::string> cards;  // by rank
  std::optional<CardStates> gpus;
  std::optional<double> load_before;  // of profiles and fingerprints: other load during the
                                      // measurement
  bool operator==(const Machine&) const = default;
};

struct Software {
  std::string compiler, cuda_build, container;
  bool operator==(const Software&) const = default;
};

struct SourceState {
  std::string commit = kNoCommit;
  std::optional<bool> dirty;  // whether the checkout has changes
  bool operator==(const SourceState&) const = default;

  static constexpr const char* kNoCommit = "unknown";
};

nlohmann::json ToJson(const std::optional<CardStates>& states);  // null: none
nlohmann::json ToJson(const Machine& machine);
nlohmann::json ToJson(const Software& software);
nlohmann::json ToJson(const SourceState& source);
Machine MachineIn(const nlohmann::json& stored, std::string_view whole = "machine");
Software SoftwareIn(const nlohmann::json& stored, std::string_view whole = "software");
SourceState SourceIn(const nlohmann::json& stored, std::string_view whole = "source");

}  // namespace sparfuse::harness
