// Makes a store on a test's own machine, its bundles, and forged bundles whose hashes all agree.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/bundle/bundle.hpp"
#include "harness/bundle/merge.hpp"
#include "harness/bundle/verify.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/store/step_log.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/store_fixture.hpp"

namespace sparfuse::harness {

inline const SourceState kWrittenBy{std::string(40, 'a'), false};

// Two ranks and two measured steps: 0.2 s and 0.4 s on the slower rank. 1 % is selected,
// and sent in one exchange.
inline void WriteTwoStepsOf(double elements, const std::filesystem::path& directory,
                            nlohmann::json& trial) {
  // The loss differs, so that no two trials have the same steps.
  const std::string of = trial.value("origin", "") + trial["trial_id"].get<std::string>();
  const double loss = 1 + 1e-9 * static_cast<double>(std::hash<std::string>()(of) % 1'000'000);
  StepLog log(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (int step = 0; step < 2; ++step) {
      LoggedStep& logged = log[rank].emplace_back(LoggedStep{step, true, loss, {}, step + 1});
      logged.record.step_seconds = 0.2 * (step + 1) - 0.05 * static_cast<double>(rank);
      logged.record.forward_seconds = logged.record.step_seconds / 4;
      logged.record.selected = static_cast<std::uint64_t>(elements / 100);
      logged.record.payload_bytes = 8 * logged.record.selected;
      logged.record.sent_bytes = logged.record.received_bytes = logged.record.payload_bytes;
      logged.record.messages_sent = logged.record.exchanges = 1;
    }
  }
  StepLogContext context;
  context.dense_elements = elements;
  context.units_per_step = 64;
  context.unit = "images";
  trial["metrics"] = ToJson(MetricsOf(log, context));
  trial["rounds"] = RoundSeconds(log);
  SeriesByFile series;
  WriteSteps(directory, log, context, series);
  trial["series"] = ToJson(series);
}

inline void WriteTwoSteps(const std::filesystem::path& directory, nlohmann::json& trial) {
  WriteTwoStepsOf(1000, directory, trial);
}

// The outcome from which a run makes this trial.
inline nlohmann::json OutcomeOfTrial(const nlohmann::json& trial) {
  nlohmann::json outcome;
  for (const char* key : {"status", "metrics", "checks", "series", "machine", "software", "quiet",
                          "layout", "sampling", "rounds", "draws"}) {
    if (trial.contains(key)) outcome[key] = trial[key];
  }
  return outcome;
}

// A store on a machine of `cores` cores, by default with an origin of its own.
class Computer {
 public:
  explicit Computer(int cores, std::string origin = "")
      : cores_(cores), origin_(std::move(origin)), store_(folder_.path()) {
    static int number = 0;
    if (origin_.empty()) origin_ = fmt::format("{:08x}", ++number);
  }

  const Store& store() const { return store_; }
  // change: edits trial.json before it is written.
  void Run(int block, double seconds,
           const std::function<void(const std::filesystem::path&, nlohmann::json&)>& change = {}) {
    const StoreLock lock(store_.results());
    nlohmann::json trial = AddTrial(store_, lock, block);
    trial["origin"] = origin_;
    std::filesystem::path directory = store_.Directory(trial["trial_id"]);
    trial["system"] = {{"cores", cores_},
                       {"cpu_model", "made up"},
                       {"gpus", nlohmann::json::array()},
                       {"memory_gib", 8}};
    trial["system_hash"] = ContentHash(trial["system"]);
    trial["seconds"] = seconds;
    trial["metrics"]["step_seconds"]["value"] = seconds / 10;
    Machine machine;
    machine.placement = {"host0", "host1"};
    trial["machine"] = ToJson(machine);
    PrivateFacts facts;
    facts.hosts = {"node-a", "node-b"};
    WritePrivateFacts(directory, facts);
    if (change) change(directory, trial);
    Rename(trial, block);
    directory = store_.Directory(trial["trial_id"]);
    if (!std::filesystem::exists(directory / "outcome.json"))
      WriteFileDurably(directory / "outcome.json", WrittenJson(OutcomeOfTrial(trial)));
    nlohmann::json config = trial["config"];
    config["trial_id"] = trial["trial_id"];
    WriteFileDurably(directory / "config.json", WrittenJson(config));
    WriteFileDurably(directory / "log.txt", "token ghp_16C7e42F292c6912E7710c838347Ae178B4a\n");
    WriteFileDurably(directory / "trial.json", WrittenJson(trial));
  }
  std::vector<TrialRow> Rows() const {
    std::vector<std::string> problems;
    std::vector<TrialRow> rows = store_.Rows(problems);
    EXPECT_EQ(problems, std::vector<std::string>());
    return rows;
  }
  // The store's bundle.
  std::filesystem::path Bundled(const std::string& name = "bundle.sparfuse",
                                const PrivateNames& names = {}) const {
    const std::filesystem::path file = outside_.path() / name;
    const Export made(store_, Rows(), names);
    EXPECT_EQ(made.summary().left_out, std::vector<std::string>());
    made.Write(kWrittenBy, file);
    return file;
  }
  std::filesystem::path BundledOf(const std::vector<TrialRow>& rows,
                                  const std::string& name) const {
    const std::filesystem::path file = outside_.path() / name;
    Export(store_, rows, {}).Write(kWrittenBy, file);
    return file;
  }
  MergeSummary Take(const std::filesystem::path& file) {
    const StoreLock lock(store_.results());
    MergeSummary summary = Merge(store_, lock, Bundle(file));
    std::vector<std::string> problems;
    store_.OpenIndex(lock, problems);
    EXPECT_EQ(problems, std::vector<std::string>());
    return summary;
  }
  void Annotate(const std::string& trial_id, const std::string& reason) const {
    store_.Annotate(StoreLock(store_.results()), trial_id, reason);
  }
  // All files of trials and annotations, with their content.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const char* folder : {"trials", "annotations"}) {
      if (!std::filesystem::exists(store_.results() / folder)) continue;
      for (const auto& entry :
           std::filesystem::recursive_directory_iterator(store_.results() / folder)) {
        if (entry.is_regular_file())
          files[std::filesystem::relative(entry.path(), store_.results())] = ReadFile(entry.path());
      }
    }
    return files;
  }

 private:
  // Renames a trial like a run does: with the hash of its configuration.
  void Rename(nlohmann::json& trial, int block) const {
    const std::string own = trial["trial_id"];
    const nlohmann::json& config = trial["config"];
    for (int number = 1; trial["trial_id"] == own; ++number) {
      const std::string id =
          fmt::format("e/p/wfbp-{}-w{}-{:.8}-{}-b{}-{}", config["workload"].get<std::string>(),
                      config["workers"].get<int>(), trial["config_hash"].get<std::string>(),
                      origin_, block, number);
      if (!std::filesystem::exists(store_.Directory(id))) trial["trial_id"] = id;
    }
    std::filesystem::rename(store_.Directory(own), store_.Directory(trial["trial_id"]));
  }

  const TemporaryFolder folder_, outside_;
  const int cores_;
  std::string origin_;
  const Store store_;
};

// Expects that every trial is present under its bundle id and that the table matches.
inline void ExpectGood(const std::filesystem::path& file) {
  EXPECT_EQ(Verify(Bundle(file)).problems, std::vector<std::string>());
}

// Writes a bundle of this content; its members beside the manifest, by name.
inline void WriteBundle(const std::filesystem::path& file, const BundleContent& content,
                        const std::map<std::string, std::string>& members = {}) {
  ArchiveWriter archive(file);
  archive.Add(kManifest, ManifestText(content, kWrittenBy));
  for (const auto& [name, bytes] : members) archive.Add(name, bytes);
  archive.Commit();
}

// Writes a bundle of one trial, with all hashes and the table of that trial, or `table`.
inline std::filesystem::path Forged(const std::filesystem::path& beside, const std::string& id,
                                    const BundledTrial& trial, std::string table = "") {
  if (table.empty()) {
    std::vector<TrialRow> rows;
    try {
      rows.push_back(RowOf(TrialOf(nlohmann::json::parse(trial.files.at("trial.json")))));
    } catch (const Error&) {  // no table has an unreadable trial
    }
    table = WrittenJson(TableOfTrials(rows, kBundleVersion));
  }
  BundleContent content;
  content.trials[id] = trial.Hashes();
  content.table = Sha256Hex(table);
  std::map<std::string, std::string> members = {{kTableMember, table}};
  for (const auto& [name, bytes] : trial.files) members[MemberOfTrial(id, name)] = bytes;
  std::filesystem::path forged = beside.parent_path() / "forged.sparfuse";
  WriteBundle(forged, content, members);
  return forged;
}

// A bundle with the first trial of `file`, edited.
inline std::filesystem::path Forged(const std::filesystem::path& file,
                                    const std::function<void(nlohmann::json&)>& edit) {
  const Bundle bundle(file);
  const std::string id = bundle.content().trials.begin()->first;
  BundledTrial trial = bundle.Trial(id);
  nlohmann::json edited = nlohmann::json::parse(trial.files["trial.json"]);
  edit(edited);
  trial.files["trial.json"] = WrittenJson(ToJson(TrialOf(edited)));
  return Forged(file, id, trial);
}

}  // namespace sparfuse::harness
