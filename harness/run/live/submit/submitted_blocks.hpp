// Remembers which blocks of an experiment were given to Slurm, and what each came to.
//
// The results folder has a folder an experiment, submitted/ID, with a record a submission, written
// before sbatch is called, and a record a block, written by the job when the block has run. A kill
// at any moment leaves either no record or the name by which Slurm knows the job.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/run/plan/trial_plan.hpp"

namespace sparfuse::harness {

// Hash of what each block has to run, present or not: configurations and revisions.
std::map<int, std::string> WorkOfBlocks(const TrialPlan& all);

// A job array.
struct Submission {
  std::string name;      // of the job; no other one has it
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
  nlohmann::json Json() const;
};

// Jobs of any experiment's blocks that wait or run, whose task writes to the same results folder.
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

  // Asks Slurm, where anything was submitted. Throws what QueuedBlocks throws.
  std::map<int, BlockState> States(const std::map<int, std::string>& work) const;

 private:
  std::filesystem::path EndOf(int block) const;

  std::filesystem::path folder_;
};

}  // namespace sparfuse::harness
