// Declares the verb that measures workloads, kernels and links.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

struct ProfileRequest {
  std::vector<std::string> workloads;
  std::string device = "cpu";
  std::string precision = "fp32";
  int most_ranks = 2;    // at once: 1, 2, 4, ... up to these
  LaunchOptions launch;  // over several hosts: ranks are spread over all of them
  int threads = 1;       // of a rank
  std::optional<int> batch;
  std::vector<std::string> sparsifiers = {"all"};  // "all": those that are no origin's form
  std::vector<std::string> quantizers = {"all"};
  int warmup = 5;                  // steps of training before the timed ones
  int passes = 50;                 // timed
  std::vector<std::string> links;  // "GBPS:ALPHA_US[:GBPS:ALPHA_US]": beside the machine's own
  int ranks_per_node = 2;          // of a link with two more numbers
  std::string name;                // of the file in results/profiles, or ""
  bool fresh = false;
};
int ProfileVerb(Program& program, const ProfileRequest& request);

// An option --link of verbs that measure: {gbps, alpha_us} of "1:100", and {intra_node_gbps,
// intra_node_us} where "1:100:10:100" goes on. Throws Error{kConfig} naming the option, also for a
// link that cannot be emulated.
LinkShape ParseLink(const std::string& text);

}  // namespace sparfuse::harness
