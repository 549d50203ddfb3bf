#include "harness/run/live/submit/submitted_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/run/live/submit/block_queue.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Kind = BlockState::Kind;

constexpr const char* kRecord = "submission-";

std::string KindName(Kind kind) {
  switch (kind) {
    case Kind::kNew:
      return "not submitted";
    case Kind::kQueued:
      return "queued";
    case Kind::kRunning:
      return "running";
    case Kind::kDone:
      return "done";
    case Kind::kFailed:
      return "failed";
    case Kind::kEnded:
      return "ended early";
  }
  return "";
}

Submission SubmissionOf(const json& record) {
  return {record.at("name"), record.at("job"), record.at("blocks"), record.at("script"),
          record.at("submitted_utc")};
}

}  // namespace

std::set<std::string> OpenJobs(const fs::path& results) {
  std::set<fs::path> folders;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(results / "submitted", none)) {
    if (entry.path().filename().string().starts_with(kRecord))
      folders.insert(entry.path().parent_path());
  }
  std::set<std::string> jobs;
  if (folders.empty()) return jobs;
  const Queue queue = QueuedBlocks();
  for (const fs::path& folder : folders) {
    for (const Submission& submission : SubmittedBlocks(folder).Read()) {
      const auto found = queue.find(submission.name);
      if (found == queue.end()) continue;
      for (const auto& [block, entry] : found->second) jobs.insert(entry.job);
    }
  }
  return jobs;
}

json BlockState::Json() const {
  return {{"state", KindName(kind)}, {"job", job}, {"detail", detail}};
}

std::map<int, std::string> WorkOfBlocks(const TrialPlan& all) {
  std::map<int, json> of_block;
  for (const PlannedTrial& trial : all.trials)
    of_block[trial.block].push_back({trial.part, trial.config_hash, trial.revisions});
  std::map<int, std::string> work;
  for (auto& [block, trials] : of_block) {
    std::sort(trials.begin(), trials.end());  // the plan's order is a shuffled one
    work[block] = ContentHash(trials);
  }
  return work;
}

std::vector<Submission> SubmittedBlocks::Read() const {
  std::vector<Submission> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kRecord) || entry.path().extension() != ".json") continue;
    try {
      found.push_back(SubmissionOf(ReadJsonFile(entry.path())));
    } catch (const json::exception& error) {
      SPARFUSE_THROW(kData, fmt::format("{}: {}", entry.path().string(), error.what()));
    }
  }
  std::ranges::sort(found, {}, &Submission::submitted_utc);
  return found;
}

void SubmittedBlocks::Write(const Submission& submission) const {
  const json record = {{"name", submission.name},
                       {"job", submission.job},
                       {"blocks", submission.blocks},
                       {"script", submission.script},
                       {"submitted_utc", submission.submitted_utc}};
  WriteFileDurably(folder_ / (kRecord + submission.name + ".json"), record.dump(1) + "\n");
}

void SubmittedBlocks::Remove(const Submission& submission) const {
  fs::remove(folder_ / (kRecord + submission.name + ".json"));
}

fs::path SubmittedBlocks::EndOf(int block) const {
  return folder_ / fmt::format("block-{}.json", block);
}

void SubmittedBlocks::WriteEnd(int block, const std::string& work, std::size_t failed) const {
  const char* job = std::getenv("SLURM_ARRAY_JOB_ID");
  const json record = {{"block", block},
                       {"work", work},
                       {"failed", failed},
                       {"job", job == nullptr ? "" : job},
                       {"ended_utc", UtcNow()}};
  WriteFileDurably(EndOf(block), record.dump(1) + "\n");
}

std::map<int, BlockState> SubmittedBlocks::States(const std::map<int, std::string>& work) const {
  std::map<int, BlockState> states;
  for (const auto& [block, hash] : work) states[block];
  const std::vector<Submission> submissions = Read();
  for (const Submission& submission : submissions) {
    for (const int block : submission.blocks) {
      if (!states.contains(block)) continue;
      states[block] = {Kind::kEnded, submission.job, "its job is over, and left it unfinished"};
    }
  }
  // What has ended is read after what is queued: a job that ends meanwhile counts as queued.
  std::map<int, BlockState> queued;
  const Queue queue = submissions.empty() ? Queue() : QueuedBlocks();
  for (const Submission& submission : submissions) {
    const auto found = queue.find(submission.name);
    for (const auto& [block, entry] : found == queue.end() ? Queue::mapped_type() : found->second)
      queued[block] = {entry.running ? Kind::kRunning : Kind::kQueued, entry.job, entry.where};
    for (const auto& [block, how] : EndedBlocks(submission.name)) {
      if (states.contains(block) && states[block].kind == Kind::kEnded)
        states[block].detail = "Slurm says " + how;
    }
  }
  for (auto& [block, state] : states) {
    if (SomethingIsAt(EndOf(block))) {
      const json end = ReadJsonFile(EndOf(block));
      if (end.value("work", "") == work.at(block)) {
        const auto failed = end.value("failed", std::size_t{0});
        state = {failed == 0 ? Kind::kDone : Kind::kFailed, end.value("job", ""),
                 failed == 0 ? "" : fmt::format("{} trial(s) failed", failed)};
      } else if (state.kind == Kind::kEnded) {
        state = {};  // it was other work
      }
    }
    if (queued.contains(block)) state = queued[block];
  }
  return states;
}

}  // namespace sparfuse::harness
