// Describes the surroundings of a trial's measurement: its machine's state, its software and its
// source; the other uses of the machine, and whether they disturbed the trial.
#pragma once

#include <map>
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

// From which reading on a trial is called disturbed, and how often it then runs again at once.
struct QuietLimits {
  double other_cpu = 0.05;  // of the cores, taken by processes that are not the trial's
  double stolen = 0.02;     // of the cores, taken by the hypervisor
  double slowdown = 1.2;    // of the reference loop
  double link = 0.05;       // by so much of its label an emulated link may be off, or change
  int reruns = 2;
  bool operator==(const QuietLimits&) const = default;
};

// The cards on which a trial's ranks on rank 0's host computed.
struct QuietCards {
  std::vector<std::string> other_processes;  // "NAME (PID)"
  std::vector<std::string> held_down_by;     // their clocks
  bool operator==(const QuietCards&) const = default;
};

// Before the measured steps and after them; nothing if the kernel tells neither.
using BeforeAndAfter = std::optional<std::vector<std::optional<double>>>;

// The rate at which the emulated link forwarded messages, outside the steps, in Gbit/s; nothing if
// it cannot be measured in time.
struct QuietLink {
  double label_gbps = 0;
  std::optional<double> before_gbps, after_gbps;  // of the slowest rank's link
  bool operator==(const QuietLink&) const = default;
};

struct Quiet {
  std::optional<double> other_cpu, stolen;  // shares of the cores, of the most disturbed host
  std::optional<double> resolution;         // by so much both may be wrong
  double seconds = 0;                       // measured
  int cores = 0;
  std::optional<double> quota;  // of the cgroup, in cores
  BeforeAndAfter clock_mhz, load;
  std::optional<double> pressure;  // share of the time during which a task waited for a core
  double own_cpu_seconds = 0, involuntary_switches = 0;
  std::vector<double> loop_seconds;  // of the reference loop
  std::optional<QuietCards> cards;
  std::optional<QuietLink> link;  // of emulated trials of several ranks

  // The judgement (harness/machine/quiet.hpp), if there are limits.
  std::optional<QuietLimits> limits;
  std::optional<double> slowdown;
  bool disturbed = false;
  std::map<std::string, double> causes;  // the readings beyond their limits
  std::string why;                       // a sentence

  bool operator==(const Quiet&) const = default;
};

// null if a trial read nothing.
nlohmann::json ToJson(const std::optional<Quiet>& quiet);
std::optional<Quiet> QuietOf(const nlohmann::json& stored, std::string_view whole = "quiet");

}  // namespace sparfuse::harness
