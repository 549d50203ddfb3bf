// Declares the verbs that describe, check and measure a system.
#pragma once

#include <string>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

struct SystemInit {
  std::string name = "this-system";  // of results/systems/NAME.toml
  bool print = false;                // print this node's part and write nothing
};
// Writes a description of a system that begins with this node, or adds this node to one that has
// none like it; nothing that is there is changed.
int SystemInitVerb(Program& program, const SystemInit& asked);
// kTrialFailed where something is still to be written or contradicts what is detected here.
int SystemCheckVerb(Program& program, const std::string& name);
// What is measured, and over which ranks.
struct SystemFingerprint {
  std::string name = "this-system";   // of results/systems/NAME.fingerprint.json
  int ranks = 0, ranks_per_node = 0;  // 0: two a host
  int threads = 1;                    // of a rank
  std::string device = "cpu", transport = "mpi";
  std::string link;  // "GBPS:ALPHA_US", or "": the machine's own
  LaunchOptions launch;
};
// Measures it, says what has changed since the file was written, and keeps it there.
int SystemFingerprintVerb(Program& program, const SystemFingerprint& asked);

}  // namespace sparfuse::harness
