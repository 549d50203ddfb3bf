// Gives blocks of an experiment to Slurm as a job array, remembers them, and asks for the state of
// each.
//
// The results folder has a folder an experiment, submitted/ID, with a record a submission.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

struct JobScript {
  std::string name;                   // of the job
  std::set<int> blocks;               // a task each
  int nodes = 1, ranks_per_node = 1;  // the need of the biggest cell
  int threads = 1;                    // of the rank that has most
  int cards = 0;                      // of a node, of the cells on cards
  std::string options;                // of the user: as sbatch takes them, or ""
  std::set<std::string> after;        // jobs that have to be over first
  std::string log_folder;
  std::vector<std::string> command;  // runs a block; the block's number follows

  // One task at a time, after others: all write to one results folder, and would disturb each
  // other. A job that comes to its time limit is told so a minute before.
  std::string Text() const;
};

// Sets the resources that suffice for all trials of the plan.
void FitTo(const TrialPlan& plan, JobScript& script);

// "0-2,5"
std::string Ranges(const std::set<int>& numbers);

struct QueuedBlock {
  bool running = false;
  std::string job;    // number of the array
  std::string where;  // its nodes, or why it waits
};

// The waiting and running jobs of this user, by the array's name and block. Throws Error{kConfig}
// if squeue does not answer, because then the queue is unknown.
using Queue = std::map<std::string, std::map<int, QueuedBlock>>;
Queue QueuedBlocks();

// The end of the blocks in Slurm's accounting ("TIMEOUT", "NODE_FAIL"), by block; empty if
// accounting is off.
std::map<int, std::string> EndedBlocks(const std::string& name);

// Parse the output of squeue --format='%j|%K|%T|%F|%R' and of sacct --format=JobID,State
// --parsable2, a line for each task. Lines of other forms are left out.
Queue ParseQueue(const std::string& lines);
std::map<int, std::string> ParseAccounting(const std::string& lines);

// The hash of each block's trials, present or not: configurations and revisions.
std::map<int, std::string> WorkOfBlocks(const TrialPlan& all);

// A job array.
struct Submission {
  std::string name;      // of the job; unique
  std::string job;       // its number, or "": sbatch did not tell
  std::set<int> blocks;  // the array's
  std::string script;    // its file
  std::string submitted_utc;
};

struct BlockState {
  enum class Kind {
    kNew,  // never submitted, or other work than now
    kQueued,
    kRunning,
    kDone,    // all its trials ran well
    kFailed,  // trials failed; they run again
    kEnded,   // its job is over, and it is not finished
  } kind = Kind::kNew;
  std::string job, detail;

  // Whether the block has to be submitted.
  bool is_open() const noexcept {
    return kind == Kind::kNew || kind == Kind::kFailed || kind == Kind::kEnded;
  }
  std::string_view KindName() const;  // "ended early"
};

// Waiting and running jobs of any experiment's blocks that write to the same results folder.
std::set<std::string> OpenJobs(const std::filesystem::path& results);

class SubmittedBlocks {
 public:
  SubmittedBlocks(const std::filesystem::path& results, const std::string& experiment)
      : SubmittedBlocks(results / "submitted" / experiment) {}
  explicit SubmittedBlocks(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& folder() const noexcept { return folder_; }
  // Oldest first. Throws Error{kData} naming a record that cannot be read.
  std::vector<Submission> Read() const;
  // Durably; again when the job's number is known.
  void Write(const Submission& submission) const;
  void Remove(const Submission& submission) const;

  // Called by the job when all of the block's trials have run; `failed` of them did not end well.
  void WriteEnd(int block, const std::string& work, std::size_t failed) const;

  // Asks Slurm if anything was submitted. Throws the errors of QueuedBlocks.
  std::map<int, BlockState> States(const std::map<int, std::string>& work) const;

 private:
  std::filesystem::path EndOf(int block) const;

  std::filesystem::path folder_;
};

}  // namespace sparfuse::harness
