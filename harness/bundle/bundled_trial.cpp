#include "harness/bundle/bundled_trial.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/store/evidence/series_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json ParsedFile(const std::map<std::string, std::string>& files, const char* file,
                const std::string& name) {
  const auto found = files.find(file);
  if (found == files.end())
    SPARFUSE_THROW(kData, fmt::format("{}: it has no {}: expected one in every trial", name, file));
  json value = ParseJson(found->second, name + "/" + file);
  if (!value.is_object())
    SPARFUSE_THROW(kData, fmt::format("{}/{}: expected an object", name, file));
  return value;
}

// Throws if scrubbing would rename a part of the cell, which would make another cell.
void RequireCellStays(const Trial& trial, const json& scrubbed, const std::string& name) {
  for (const char* key : {"cluster", "workload", "method", "sparsifier"}) {
    const json own = trial.config.value(key, json());
    if (own.is_string() && scrubbed.value(key, json()) != own) {
      SPARFUSE_THROW(kData,
                     fmt::format("{}: config.{} = {} is, or has, the name of a host or a user: "
                                 "expected another name in files that leave this machine",
                                 name, key, own.dump()));
    }
  }
}

// The config.json of the bundle: `scrubbed`, and the keys beside the cell.
json LeavingConfig(const json& stored, const json& scrubbed, const std::string& id) {
  json config = scrubbed;
  for (const char* key : {"block", "seed"}) {
    if (const auto found = stored.find(key); found != stored.end() && found->is_number_integer())
      config[key] = *found;
  }
  config["trial_id"] = id;
  return config;
}

// Keeps the bytes of a trial that came from a bundle, if scrubbing removes nothing. earlier: the
// bundle had version 1 or 2, whose JSON may have forms that records lack.
class LeftBefore {
 public:
  LeftBefore(const std::map<std::string, std::string>& files, const std::string& name, bool earlier)
      : files_(files), name_(name), earlier_(earlier) {}

  template <class Record>
  void Require(const char* file, const json& stored, const Record& record) const {
    Record scrubbed = record;
    ScrubRecord(scrubbed, TextScrubber());
    json left = earlier_ ? stored : ToJson(record);
    if (earlier_) {
      for (const char* part : {"machine", "launch", "quiet"}) {
        if (left.contains(part)) Form<json>::Scrub(left[part], Leaves::kData, TextScrubber());
      }
    }
    RequireBytes(file, left, scrubbed == record);
  }

  void RequireConfig(json stored, const std::string& id) const {
    if (earlier_ && stored.value("python_files", json()) == json::object())
      stored.erase("python_files");
    json left = LeavingConfig(stored, ScrubbedConfig(stored, TextScrubber()), id);
    if (earlier_) left["python_files"] = json::object();
    RequireBytes("config.json", left, true);
  }

 private:
  void RequireBytes(const char* file, const json& left, bool is_scrubbed) const {
    if (is_scrubbed && WrittenJson(left) == files_.at(file)) return;
    SPARFUSE_THROW(kData, fmt::format("{}/{}: it says that it left its machine in a bundle, but "
                                      "has another form than `export` writes",
                                      name_, file));
  }

  const std::map<std::string, std::string>& files_;
  const std::string& name_;
  const bool earlier_;
};

void TakeNames(TrialResult& result, PrivateFacts& facts) {
  if (result.machine) harness::TakeNames(*result.machine, facts);
  if (result.quiet) harness::TakeNames(*result.quiet, facts);
}

// Scrubs a trial that never left its store, and its list of files. Its hashes become those of the
// scrubbed content.
void Scrub(Trial& trial, const TextScrubber& scrubber, const std::set<std::string>& leave,
           const std::string& name) {
  RequireCellStays(trial, ScrubbedConfig(trial.config, scrubber), name);
  PrivateFacts others;  // names written by hand; the program's own text stays
  TakeNames(static_cast<TrialResult&>(trial), others);
  if (trial.launch) harness::TakeNames(*trial.launch, others);
  harness::TakeNames(trial.environment, others);
  ScrubRecord(trial, scrubber);
  std::erase_if(trial.series, [&](const auto& series) { return !leave.contains(series.first); });
  trial.files.assign(leave.begin(), leave.end());
  trial.redaction = kRedaction;
  trial.config_hash = ConfigHash(trial.config);
  trial.system_hash = HashOf(trial.system);
  try {
    TrialOf(ToJson(trial), name);
    if (trial.origin.empty()) SPARFUSE_THROW(kData, "origin: expected hexadecimal digits");
    if (trial.trial_id.empty()) SPARFUSE_THROW(kData, "trial_id: expected a place");
  } catch (const Error& error) {
    SPARFUSE_THROW(kData, fmt::format("{}: the part that may leave this machine is not a trial: {}",
                                      name, error.what()));
  }
}

}  // namespace

std::string WrittenJson(const json& value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::map<std::string, std::string> BundledTrial::Hashes() const {
  std::map<std::string, std::string> hashes;
  for (const auto& [name, content] : files) hashes[name] = Sha256Hex(content);
  return hashes;
}

BundledTrial BundleFiles(std::map<std::string, std::string> files, const std::string& name,
                         const TextScrubber& scrubber) {
  const json stored = ParsedFile(files, "trial.json", name);
  const json config = ParsedFile(files, "config.json", name);
  BundledTrial bundled{TrialOf(stored, name + "/trial.json"), {}};
  Trial& trial = bundled.trial;
  if (const auto wrong = WhatConfigContradicts(config, stored, name + "/config.json");
      !wrong.empty())
    SPARFUSE_THROW(kData, fmt::format("{}: {}", name, wrong));
  RequirePlainText(config, name + "/config.json");
  std::set<std::string> leave = {"config.json"};  // beside trial.json
  std::erase_if(files, [&](const auto& file) {
    const bool series = SeriesFiles().contains(file.first);
    return series && !WhatIsWrongWithSeries(file.first, file.second).empty();
  });
  for (const auto& [series, of] : trial.series) {
    if (files.contains(series)) continue;
    SPARFUSE_THROW(
        kData,
        fmt::format("{}: it lists the series {}, which is missing or cut off: bring the file back, "
                    "or `sparfuse annotate {} --reason \"its series are lost\"`, and run it again",
                    name, series, trial.trial_id));
  }
  for (const auto& [file, content] : files) {
    if (file != "trial.json") leave.insert(file);
  }
  const bool earlier = IsOfEarlierBundle(stored);
  std::optional<Outcome> outcome;
  json stored_outcome;
  if (files.contains("outcome.json")) {
    stored_outcome = ParsedFile(files, "outcome.json", name);
    RequirePlainText(stored_outcome, name + "/outcome.json");
    outcome = OutcomeOf(earlier ? ReadableOfEarlierBundle(stored_outcome) : stored_outcome,
                        name + "/outcome.json");
  }
  if (trial.redaction > 0) {
    const LeftBefore left(files, name, earlier);
    left.Require("trial.json", stored, trial);
    left.RequireConfig(config, trial.trial_id);
    if (outcome) left.Require("outcome.json", stored_outcome, *outcome);
    bundled.files = std::move(files);
    return bundled;
  }
  const json scrubbed = ScrubbedConfig(config, scrubber);
  Scrub(trial, scrubber, leave, name);
  if (outcome) {
    PrivateFacts others;
    TakeNames(*outcome, others);
    ScrubRecord(*outcome, scrubber);
    files["outcome.json"] = WrittenJson(ToJson(*outcome));
  }
  files["config.json"] = WrittenJson(LeavingConfig(config, scrubbed, trial.trial_id));
  files["trial.json"] = WrittenJson(ToJson(trial));
  bundled.files = std::move(files);
  return bundled;
}

BundledTrial BundleTrial(const Store& store, const std::string& place, const TextScrubber& scrubber,
                         std::set<std::string>& stays) {
  const fs::path directory = store.Directory(place);
  std::map<std::string, std::string> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    const std::string file = entry.path().filename().string();
    if (file == "trial.json" || file == "config.json" || file == "outcome.json") {
      files[file] = ReadFile(entry.path());
    } else if (SeriesFiles().contains(file)) {
      files[file] = ReadFile(entry.path());
      const std::string wrong = WhatIsWrongWithSeries(file, files[file]);
      if (!wrong.empty()) stays.insert(fmt::format("{} ({})", file, wrong));
    } else if (file == kPrivateFile) {
      const json facts = ToJson(ReadPrivateFacts(directory));
      for (const auto& [key, value] : facts.items())
        stays.insert(fmt::format("{}: {}", kPrivateFile, key));
    } else {
      // Each rank has one: failure-rank0.json
      const bool known = file == "log.txt" || file == "trace.json" || file == "session.txt";
      stays.insert(known                              ? file
                   : file.starts_with("failure-rank") ? "failure-rankR.json"
                   : file.starts_with("trace-rank")   ? "trace-rankR.json"
                   : file == "kineto"                 ? "kineto"
                                                      : "files of other names");
    }
  }
  if (failed)
    SPARFUSE_THROW(kData, fmt::format("cannot read {}: {}", directory.string(), failed.message()));
  return BundleFiles(std::move(files), directory.string(), scrubber);
}

LeavingKeys KeysThatLeave() {
  LeavingKeys keys;
  ListLeavingKeys(KeysOf<Trial>(), "trial.json: ", keys);
  keys.erase("trial.json: config");
  ListLeavingKeys(KeysOf<CellConfig>(), "trial.json: config.", keys);
  ListLeavingKeys(KeysOf<CellConfig>(), "config.json: ", keys);
  ListLeavingKeys(KeysOf<TrialConfig>(), "config.json: ", keys);
  ListLeavingKeys(KeysOf<Outcome>(), "outcome.json: ", keys);
  ListLeavingKeys(KeysOf<Annotation>(), "annotations: ", keys);
  return keys;
}

Annotation BundleAnnotation(Annotation annotation, const std::string& trial_id,
                            const TextScrubber& scrubber) {
  annotation.trial_id = trial_id;
  const bool left_before = annotation.redaction > 0;
  ScrubRecord(annotation, left_before ? TextScrubber() : scrubber);
  if (!left_before) annotation.redaction = kRedaction;
  return annotation;
}

}  // namespace sparfuse::harness
