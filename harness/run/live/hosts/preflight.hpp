// Launches ranks that train nothing and report their hosts, before trials are launched there, and
// judges their reports.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/machine/doctor.hpp"
#include "harness/records/launch.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/launch/launch_method.hpp"
#include "harness/run/run_options.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// Set for workers that shall do the preflight; their argument is a folder of the launch.
inline constexpr const char* kPreflightVariable = "SPARFUSE_PREFLIGHT";
// In that folder, the launch's nonce: who reads it sees the results folder.
inline constexpr const char* kPreflightSeen = "nonce";
// Begins the lines of facts in the log of a preflight: an object with "rank" and that rank's facts,
// spread over several lines in the order in which it found them.
inline constexpr const char* kFactsLine = "preflight: ";

struct PreflightRequest {
  LaunchMethod method;
  std::filesystem::path worker;   // its executable
  std::filesystem::path results;  // a folder is made there, and removed
  int ranks = 0;                  // 0: one a host, which must then be known; on one host two
  double timeout_seconds = 60;    // of a launch
  Environment environment;        // that ranks need besides
  bool shared = true;             // trials need the results folder on every host
};

// The facts that a rank found.
struct HostFacts : RankBinding {
  int rank = 0;
  std::string worker;             // the hash of its executable
  std::string mpi, cuda, driver;  // versions; "": there is none
  std::optional<int> nccl;
  std::map<std::string, std::string> libraries;  // of measurements: the id of each file
  std::string cpu;
  std::vector<std::string> cards;              // a model a card
  std::optional<std::uint64_t> memlock_bytes;  // that a process may lock; nothing: any number
  double shm_free_bytes = 0;
  std::vector<std::string> interfaces;  // that are up
  bool rdma = false, sees_results = false;
  // Of its wall clock, relative to rank 0's; nothing before the ranks met.
  std::optional<double> clock_ahead_seconds, clock_uncertainty_seconds;
  std::string error;
};

struct HostFailure {
  std::string host;  // its name, as in the hostfile; "": unknown, or none
  std::string why;
};

struct Preflight {
  std::vector<HostFacts> ranks;  // by rank
  std::vector<HostFailure> failures;
};

// If ranks do not all start, and a hostfile lists the hosts, each host is tried alone to find the
// one at fault. Throws Error{kConfig} as CheckMayLaunch and RanksPerHost if a launch is not
// possible; Error{kData} if the folder cannot be made.
Preflight RunPreflight(const PreflightRequest& request, const std::atomic<bool>& interrupted);

// Tries each host of the method's hostfile alone, and returns the hosts on which no rank starts.
std::vector<HostFailure> HostsThatDoNotStart(const PreflightRequest& request,
                                             const std::atomic<bool>& interrupted);

// Facts in a launch's log, by rank; other lines are passed over.
std::vector<HostFacts> ReadFacts(const std::string& log);

// Judges whether trials would run on these hosts, and whether the hosts are alike. Each finding
// names the hosts that differ from rank 0's, and a remedy. kError: trials would fail.
std::vector<Finding> JudgePreflight(const Preflight& preflight, const PreflightRequest& request);

// A line for each host with its hardware and software.
std::string TableOfHosts(const Preflight& preflight);

struct AskedNodes {
  std::vector<Node> nodes;  // by host, as RunOptions has them; empty: they did not all tell
  std::vector<std::string> problems;  // the reasons for which trials would fail there, a sentence
                                      // each
};

// Asks by a preflight, which takes a second or two. What is
// no launch at all (srun outside of an allocation, no worker) is no problem here: trials say it.
AskedNodes AskNodes(const RunOptions& options, const std::filesystem::path& results,
                    const std::atomic<bool>& interrupted);

// The nodes of the newest trial that names its nodes, each kind once; empty if no trial does.
std::vector<Node> StoredNodes(const std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness
