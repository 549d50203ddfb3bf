// Writes the script of a job array that runs blocks of an experiment.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

struct JobScript {
  std::string name;                   // of the job
  std::set<int> blocks;               // a task each
  int nodes = 1, ranks_per_node = 1;  // what the biggest cell needs
  int threads = 1;                    // of a rank, of the one that has most
  int cards = 0;                      // of a node, of the cells on cards
  std::string options;                // of the user: as sbatch takes them, or ""
  std::set<std::string> after;        // jobs that have to be over first
  std::string log_folder;
  std::vector<std::string> command;  // that runs a block, whose number follows

  // One task at a time, after others: all write to one results folder, and would disturb each
  // other. A job that comes to its time limit is told so a minute before.
  std::string Text() const;
};

// What all trials of the plan fit into.
void FitTo(const TrialPlan& plan, JobScript& script);

// "0-2,5"
std::string Ranges(const std::set<int>& numbers);

}  // namespace sparfuse::harness
