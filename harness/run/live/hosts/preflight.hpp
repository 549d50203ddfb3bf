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

namespace sparfuse::harness {

// Set for workers that are to do so; their argument is a folder of the launch.
inline constexpr const char* kPreflightVariable = "SPARFUSE_PREFLIGHT";
// In that folder, the launch's nonce: who reads it sees the results folder.
inline constexpr const char* kPreflightSeen = "nonce";
// Begins the lines of such a launch's log that are facts: an object with "rank" and what that rank
// found, in several lines what it found first and later.
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

// What a rank found.
struct HostFacts : RankBinding {
  int rank = 0;
  std::string worker;             // the hash of its executable
  std::string mpi, cuda, driver;  // versions; "": there is none
  std::optional<int> nccl;
  std::map<std::string, std::string> libraries;  // those that measure: what tells files apart
  std::string cpu;
  std::vector<std::string> cards;              // a model a card
  std::optional<std::uint64_t> memlock_bytes;  // that a process may lock; nothing: any number
  double shm_free_bytes = 0;
  std::vector<std::string> interfaces;  // that are up
  bool rdma = false, sees_results = false;
  // Of its wall clock, against rank 0's; nothing before the ranks met.
  std::optional<double> clock_ahead_seconds, clock_uncertainty_seconds;
  std::string error;
};

struct HostFailure {
  std::string host;  // as the hostfile names it; "": it is not known which one
  std::string why;
};

struct Preflight {
  std::vector<HostFacts> ranks;  // by rank
  std::vector<HostFailure> failures;
};

// Where ranks do not all come up and a hostfile says which hosts there are, each of these is tried
// alone, so that the one at fault has a name. Throws Error{kConfig}: what is no launch, as
// CheckMayLaunch and RanksPerHost; Error{kData} where the folder cannot be made.
Preflight RunPreflight(const PreflightRequest& request, const std::atomic<bool>& interrupted);

// The hosts of the method's hostfile on which no rank starts, each tried alone.
std::vector<HostFailure> HostsThatDoNotStart(const PreflightRequest& request,
                                             const std::atomic<bool>& interrupted);

// Facts in a launch's log, by rank; other lines are passed over.
std::vector<HostFacts> ReadFacts(const std::string& log);

// Whether trials would run on these hosts, and be of one machine. Each finding names the hosts that
// differ from rank 0's, and what mends it. kError: trials would fail.
std::vector<Finding> JudgePreflight(const Preflight& preflight, const PreflightRequest& request);

// A line a host: what it is made of, beside the others.
std::string TableOfHosts(const Preflight& preflight);

}  // namespace sparfuse::harness
