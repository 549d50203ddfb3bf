#include "harness/run/trial_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/records/record.hpp"
#include "harness/store/origin.hpp"
#include "harness/store/scrubber.hpp"

namespace sparfuse::harness {

namespace {

// Replaces characters that readers would refuse by visible ones.
class MadeVisible final : public Scrubber {
 public:
  std::string Scrubbed(const std::string& text, Leaves) const override { return Visible(text); }
};

}  // namespace

std::string StemOf(const PlannedTrial& trial, const std::string& origin) {
  const auto& config = trial.config;
  return fmt::format("{}-{}-w{}-{}{}{}-b{}", config.is_profile() ? "profile" : config.method,
                     WorkloadLabel(config.workload), config.workers, trial.config_hash.substr(0, 8),
                     origin.empty() ? "" : "-", origin, trial.block);
}

TrialWriter::TrialWriter(const Store& store, const StoreLock& lock, SourceState source)
    : store_(store), lock_(lock), source_(std::move(source)) {}

TrialConfig TrialWriter::Begin(const PlannedTrial& trial) const {
  const std::string stem = StemOf(trial, OriginOf(lock_, store_.results(), HashOf(trial.system)));
  TrialConfig config{trial.config, static_cast<std::uint64_t>(trial.seed), trial.block,
                     store_.CreateTrial(lock_, trial.experiment, trial.part, stem)};
  const std::filesystem::path directory = store_.Directory(config.trial_id);
  // Written first: it marks the directory as an unfinished trial.
  WriteFileDurably(directory / "config.json", ToJson(config).dump(1) + "\n");
  PrivateFacts facts;
  facts.python_files = FilesOfParts(trial.config);
  WritePrivateFacts(directory, facts);
  return config;
}

Trial TrialWriter::Finish(const PlannedTrial& planned, const std::string& id, Outcome outcome,
                          const HowItRan& how) const {
  const std::filesystem::path directory = store_.Directory(id);
  Trial trial;
  static_cast<TrialResult&>(trial) = std::move(outcome);
  ScrubRecord(trial, MadeVisible());  // compilers and libraries may colour their text
  trial.trial_id = id;
  trial.system = planned.system;
  // The nodes that ran may differ from the plan, because a launcher may choose among hosts.
  if (how.across_hosts && how.launch && !how.launch->nodes.empty())
    trial.system = SystemOfNodes(how.launch->nodes);
  trial.system_hash = HashOf(trial.system);
  trial.origin = OriginOf(lock_, store_.results(), trial.system_hash);
  trial.experiment = planned.experiment;
  trial.part = planned.part;
  trial.config = ToJson(planned.config);
  trial.config_hash = planned.config_hash;
  trial.source = source_;
  trial.revisions = planned.revisions;
  trial.sources = planned.sources;
  trial.block = planned.block;
  trial.seed = planned.seed;
  trial.started_utc = how.started;
  trial.seconds = how.seconds;
  trial.environment = how.environment;
  trial.launch = how.launch;
  trial.fingerprint = how.fingerprint;
  PrivateFacts facts = ReadPrivateFacts(directory);
  TakeNames(trial.environment, facts);
  facts.argv = how.argv;
  facts.AddUsers(CurrentUsers());
  if (trial.failure) {
    facts.failure = trial.failure->message;
    facts.log_tail = trial.failure->log_tail;
  }
  WritePrivateFacts(directory, facts);
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    trial.files.push_back(entry.path().filename().string());
  std::ranges::sort(trial.files);
  store_.Finish(lock_, trial);
  return trial;
}

}  // namespace sparfuse::harness
