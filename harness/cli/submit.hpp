// Declares the functions that give blocks of experiments to Slurm, and tell the state of these
// blocks.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/run/live/submitted_blocks.hpp"

namespace sparfuse::harness {

// The options of `sparfuse run --submit`.
struct SubmitRequest {
  bool submit = false;
  std::string sbatch_options;            // one line, as sbatch takes them
  LaunchOptions launch;                  // within the job
  std::optional<bool> fingerprint = {};  // of the job's run
};

int SubmitVerb(Program& program, const std::vector<Experiment>& experiments,
               const SubmitRequest& request);
// Prints the scripts that Submit would give to Slurm if nothing were there yet.
int PrintScripts(Program& program, const std::vector<Experiment>& experiments,
                 const SubmitRequest& request);
// A job calls it after it has run a block to its end, so that the program that submitted the job
// learns of it.
void RecordBlock(Program& program, const std::vector<Experiment>& experiments, int block,
                 const RunSummary& summary);
// By block; empty if nothing was submitted.
std::map<int, BlockState> StatesOfBlocks(Program& program, const Experiment& experiment);

}  // namespace sparfuse::harness
