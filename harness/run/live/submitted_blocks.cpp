#include "harness/run/live/submitted_blocks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/launch_command.hpp"

namespace sparfuse::harness {

std::string Ranges(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

void FitTo(const TrialPlan& plan, JobScript& script) {
  for (const PlannedTrial& trial : plan.trials) {
    const CellConfig& config = trial.config;
    script.ranks_per_node = std::max(script.ranks_per_node, config.ranks_per_node);
    script.nodes = std::max(script.nodes, NodesOf(config));
    script.threads = std::max(script.threads, config.threads_per_worker);
    if (config.device == Place::kCuda)
      script.cards = std::max(script.cards, std::min(config.ranks_per_node, config.workers));
  }
}

std::string JobScript::Text() const {
  std::string text = "#!/bin/sh\n";
  const auto add = [&](const std::string& option) { text += "#SBATCH " + option + "\n"; };
  add(fmt::format("--nodes={}", nodes));
  add(fmt::format("--ntasks-per-node={}", ranks_per_node));
  add(fmt::format("--cpus-per-task={}", threads));
  if (cards > 0) add(fmt::format("--gpus-per-node={}", cards));
  add("--signal=B:TERM@60");
  if (!options.empty()) add(options);
  add("--job-name=" + name);
  add(fmt::format("--array={}%1", Ranges(blocks)));
  if (!after.empty()) add(fmt::format("--dependency=afterany:{}", fmt::join(after, ":")));
  // Slurm takes a quoted text as one word. Quotes in it, and characters that Slurm replaces, are
  // escaped.
  std::string folder;
  for (const char c : log_folder) {
    if (c == '"' || c == '\\') folder += '\\';
    if (c == '%') folder += '%';
    folder += c;
  }
  add(fmt::format("--output=\"{}/%A_%a.log\"", folder));
  text += "exec " + ShellLine({}, command) + " --block \"$SLURM_ARRAY_TASK_ID\"\n";
  return text;
}

namespace {

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '|');) fields.push_back(field);
  return fields;
}

std::optional<int> Number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

Queue ParseQueue(const std::string& lines) {
  Queue queue;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const auto fields = Fields(line);
    if (fields.size() < 4) continue;
    const auto block = Number(fields[1]);
    if (!block) continue;
    std::string where = fields.size() > 4 ? fields[4] : "";
    if (where.starts_with('(') && where.ends_with(')')) where = where.substr(1, where.size() - 2);
    // A job that is ending (COMPLETING) still holds its nodes.
    queue[fields[0]][*block] = {fields[2] != "PENDING", fields[3], where};
  }
  return queue;
}

std::map<int, std::string> ParseAccounting(const std::string& lines) {
  std::map<int, std::string> blocks;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const auto fields = Fields(line);
    const std::size_t underscore = fields.empty() ? std::string::npos : fields[0].find('_');
    if (fields.size() < 2 || underscore == std::string::npos) continue;
    const auto block = Number(std::string_view(fields[0]).substr(underscore + 1));
    if (block) blocks[*block] = fields[1];  // a later line belongs to a later job
  }
  return blocks;
}

Queue QueuedBlocks() {
  bool ok = false;
  const std::string lines = CommandOutput(
      "squeue --noheader --array --user=\"$(id -u)\" --format='%j|%K|%T|%F|%R' 2>&1", ok);
  if (!ok) {
    SPARFUSE_THROW(kConfig, fmt::format("squeue does not list queued jobs: \"{}\"; expected Slurm, "
                                        "and its controller to answer",
                                        lines));
  }
  return ParseQueue(lines);
}

std::map<int, std::string> EndedBlocks(const std::string& name) {
  bool ok = false;
  const std::string lines =
      CommandOutput(fmt::format("sacct --noheader --allocations --parsable2 --starttime=now-60days "
                                "--name={} --format=JobID,State 2>/dev/null",
                                name),
                    ok);
  return ok ? ParseAccounting(lines) : std::map<int, std::string>();
}

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using State = BlockState::Kind;

constexpr const char* kRecord = "submission-";

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

std::string_view BlockState::KindName() const {
  static constexpr std::string_view kNames[] = {"not submitted", "queued", "running",
                                                "done",          "failed", "ended early"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::map<int, std::string> WorkOfBlocks(const TrialPlan& all) {
  std::map<int, json> of_block;
  for (const PlannedTrial& trial : all.trials)
    of_block[trial.block].push_back({trial.part, trial.config_hash, trial.revisions});
  std::map<int, std::string> work;
  for (auto& [block, trials] : of_block) {
    std::sort(trials.begin(), trials.end());  // the plan's order is shuffled
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
      states[block] = {State::kEnded, submission.job, "its job is over, and left it unfinished"};
    }
  }
  // The queue is read before the ended jobs, so a job that ends meanwhile counts as queued.
  std::map<int, BlockState> queued;
  const Queue queue = submissions.empty() ? Queue() : QueuedBlocks();
  for (const Submission& submission : submissions) {
    const auto found = queue.find(submission.name);
    for (const auto& [block, entry] : found == queue.end() ? Queue::mapped_type() : found->second)
      queued[block] = {entry.running ? State::kRunning : State::kQueued, entry.job, entry.where};
    for (const auto& [block, how] : EndedBlocks(submission.name)) {
      if (states.contains(block) && states[block].kind == State::kEnded)
        states[block].detail = "Slurm says " + how;
    }
  }
  for (auto& [block, state] : states) {
    if (SomethingIsAt(EndOf(block))) {
      const json end = ReadJsonFile(EndOf(block));
      if (end.value("work", "") == work.at(block)) {
        const auto failed = end.value("failed", std::size_t{0});
        state = {failed == 0 ? State::kDone : State::kFailed, end.value("job", ""),
                 failed == 0 ? "" : fmt::format("{} trial(s) failed", failed)};
      } else if (state.kind == State::kEnded) {
        state = {};  // the job ran other work
      }
    }
    if (queued.contains(block)) state = queued[block];
  }
  return states;
}

}  // namespace sparfuse::harness
