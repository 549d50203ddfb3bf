#include "harness/run/trial_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "harness/catalog/model_table.hpp"
#include "harness/catalog/python_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/node.hpp"
#include "harness/store/origin.hpp"

namespace sparfuse::harness {

using nlohmann::json;

std::string StemOf(const PlannedTrial& trial, const std::string& origin) {
  const auto& config = trial.config;
  return fmt::format("{}-{}-w{}-{}{}{}-b{}", config.is_profile() ? "profile" : config.method,
                     WorkloadLabel(config.workload), config.workers, trial.config_hash.substr(0, 8),
                     origin.empty() ? "" : "-", origin, trial.block);
}

TrialWriter::TrialWriter(const Store& store, const StoreLock& lock, json source)
    : store_(store), lock_(lock), source_(std::move(source)) {}

std::string TrialWriter::OriginOf(const json& system) const {
  return harness::OriginOf(lock_, store_.results(), ContentHash(system));
}

TrialConfig TrialWriter::Begin(const PlannedTrial& trial) const {
  const std::string stem = StemOf(trial, OriginOf(trial.system));
  const TrialConfig config{trial.config, static_cast<std::uint64_t>(trial.seed), trial.block,
                           store_.CreateTrial(lock_, trial.experiment, trial.part, stem),
                           PythonFilesOf(trial.config)};
  WriteFileDurably(store_.Directory(config.trial_id) / "config.json",
                   ToJson(config).dump(1) + "\n");
  return config;
}

json TrialWriter::Finish(const PlannedTrial& planned, const std::string& id, json outcome,
                         const HowItRan& how) const {
  json trial = std::move(outcome);
  trial.erase("turn_seconds");
  trial["schema"] = kTrialSchema;
  trial["trial_id"] = id;
  trial["system"] = planned.system;
  // What ran, where the plan knew another: a launcher may choose among its hosts.
  if (how.across_hosts && how.launch.contains("nodes"))
    trial["system"] = ToJson(SystemOfNodes(NodesIn(how.launch.at("nodes"))));
  trial["origin"] = OriginOf(trial["system"]);
  trial["experiment"] = planned.experiment;
  trial["part"] = planned.part;
  trial["config"] = ToJson(planned.config);
  trial["config_hash"] = planned.config_hash;
  trial["system_hash"] = ContentHash(trial["system"]);
  trial["source"] = source_;
  trial["revisions"] = planned.revisions;
  trial["sources"] = planned.sources;
  trial["block"] = planned.block;
  trial["seed"] = planned.seed;
  trial["started_utc"] = how.started;
  trial["seconds"] = how.seconds;
  trial["argv"] = how.argv;
  trial["environment"] = how.environment;
  if (!how.launch.is_null()) trial["launch"] = how.launch;
  if (!how.fingerprint.is_null()) trial["fingerprint"] = how.fingerprint;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(store_.Directory(id))) {
    files.push_back(entry.path().filename().string());
  }
  std::sort(files.begin(), files.end());
  trial["files"] = files;
  store_.Finish(lock_, trial);
  return trial;
}

}  // namespace sparfuse::harness
