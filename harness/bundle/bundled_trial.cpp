#include "harness/bundle/bundled_trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "core/base/error.hpp"
#include "harness/bundle/series_file.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/store/users/user_names.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kOriginDigits = 8;

// Of a trial whose id is not unique to its store: told apart by what it measured and when.
std::string OriginByContent(const json& trial) {
  json content = json::object();
  for (const char* key : {"trial_id", "started_utc", "config_hash", "system_hash", "seed", "block",
                          "seconds", "metrics"})
    content[key] = trial.value(key, json());
  return ContentHash(content).substr(0, kOriginDigits);
}

// Where "-b3-1" begins at the end of a trial's name; npos where it does not end so.
std::size_t BlockIn(const std::string& id) {
  const auto digits_before = [&](std::size_t end) {
    while (end > 0 && std::isdigit(static_cast<unsigned char>(id[end - 1])) != 0) --end;
    return end;
  };
  const std::size_t number = digits_before(id.size());
  if (number == id.size() || number < 2 || id[number - 1] != '-') return std::string::npos;
  const std::size_t block = digits_before(number - 1);
  const bool is_block = block < number - 1 && block >= 2 && id.compare(block - 2, 2, "-b") == 0;
  return is_block ? block - 2 : std::string::npos;
}

// Gives an older trial the id that it has in all other stores.
void NameByOrigin(json& trial) {
  if (trial.contains("origin")) return;
  const std::string own = trial["trial_id"], origin = OriginByContent(trial);
  trial["origin"] = origin;
  trial["original_id"] = own;
  trial["trial_id"] = WithOrigin(own, origin);
  // Trials of one launch are told by its id, which names the first of them.
  if (trial.contains("launch") && trial["launch"].is_object() && trial["launch"].contains("id") &&
      trial["launch"]["id"].is_string()) {
    auto& launch = trial["launch"]["id"].get_ref<std::string&>();
    launch += "-" + trial["system_hash"].get<std::string>().substr(0, kOriginDigits) + "-" +
              Sha256Hex(trial["started_utc"].get<std::string>()).substr(0, kOriginDigits);
  }
}

// Cards may be chosen by their serial numbers.
void ForgetCards(json& trial) {
  if (!trial.contains("environment") || !trial["environment"].is_object()) return;
  const json cards = trial["environment"].value("CUDA_VISIBLE_DEVICES", json());
  if (!cards.is_string() ||
      cards.get_ref<const std::string&>().find_first_not_of("0123456789,") != std::string::npos)
    trial["environment"].erase("CUDA_VISIBLE_DEVICES");
}

// The sentence names processes of a card's other users.
void ForgetProcesses(json& trial) {
  if (!trial.contains("quiet") || !trial["quiet"].is_object()) return;
  json& quiet = trial["quiet"];
  const json cards = quiet.value("cards", json());
  if (cards.is_object() && !cards.value("other_processes", json::array()).empty())
    quiet["why"] = "other processes used the cards";
}

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

// "host12", as hosts of redacted trials are called.
bool IsNumberedHost(const std::string& name) {
  return name.size() > 4 && name.starts_with("host") &&
         name.find_first_not_of("0123456789", 4) == std::string::npos;
}

// `names` with those of the hosts that ran the trial.
PrivateNames WithHosts(PrivateNames names, const json& trial) {
  if (const json machine = trial.value("machine", json()); machine.is_object())
    names.AddHosts(machine.value("placement", json()));
  names.AddHosts(HostsOfLaunch(trial.value("launch", json())));
  return names;
}

// A cell of another name elsewhere would be another cell.
void RequireCellStays(const json& trial, const json& redacted, const std::string& name) {
  for (const char* key : {"cluster", "workload", "method", "sparsifier"}) {
    const json own = trial["config"].value(key, json());
    if (own.is_string() && redacted["config"].value(key, json()) != own) {
      SPARFUSE_THROW(kData,
                     fmt::format("{}: config.{} = {} is, or has, the name of a host or a user: "
                                 "expected another name for what leaves this machine",
                                 name, key, own.dump()));
    }
  }
}

// Leaves of `files` and `series` those files that leave.
void NameFiles(const std::set<std::string>& leave, json& trial) {
  json& files = trial["files"] = json::array();
  for (const std::string& file : leave) files.push_back(file);
  if (!trial.contains("series") || !trial["series"].is_object()) return;
  json series = json::object();
  for (const auto& [file, description] : trial["series"].items()) {
    if (leave.contains(file)) series[file] = description;
  }
  trial["series"] = std::move(series);
}

}  // namespace

std::string WrittenJson(const json& value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

bool IsRedacted(const json& value) {
  const json by = value.is_object() ? value.value("redaction", json()) : json();
  return by.is_number_integer() && by >= 1 && by <= kRedaction;
}

std::string WithOrigin(const std::string& id, const std::string& origin) {
  const std::size_t block = BlockIn(id);
  if (block == std::string::npos) return id + "-" + origin;
  return id.substr(0, block) + "-" + origin + id.substr(block);
}

std::map<std::string, std::string> BundledTrial::Hashes() const {
  std::map<std::string, std::string> hashes;
  for (const auto& [name, content] : files) hashes[name] = Sha256Hex(content);
  return hashes;
}

BundledTrial BundleFiles(std::map<std::string, std::string> files, const std::string& name,
                         const PrivateNames& names, Redactions& met) {
  json trial = ParsedFile(files, "trial.json", name);
  json config = ParsedFile(files, "config.json", name);
  if (const std::string wrong = WhatIsWrongWithTrial(trial); !wrong.empty())
    SPARFUSE_THROW(kData, fmt::format("{}/trial.json: {}", name, wrong));
  const bool is_redacted = IsRedacted(trial);
  BundledTrial bundled;
  bundled.names = is_redacted ? names : WithHosts(names, trial);
  const PrivateNames nobody, &private_names = is_redacted ? nobody : bundled.names;
  std::set<std::string> leave;  // beside trial.json
  for (const auto& [file, content] : files) {
    if (!SeriesFiles().contains(file)) continue;
    const std::string wrong = WhatIsWrongWithSeries(file, content);
    if (wrong.empty()) {
      leave.insert(file);
    } else {
      met.stays.insert(fmt::format("{} ({})", file, wrong));
    }
  }
  if (files.contains("outcome.json")) {
    leave.insert("outcome.json");
    bundled.files["outcome.json"] =
        WrittenJson(Redact(ParsedFile(files, "outcome.json", name), OutcomeForm(), private_names,
                           "outcome.json", met));
  }
  leave.insert("config.json");
  NameByOrigin(trial);
  ForgetProcesses(trial);
  ForgetCards(trial);
  if (!is_redacted) trial["redaction"] = kRedaction;
  NameFiles(leave, trial);
  bundled.trial = Redact(trial, TrialForm(), private_names, "trial.json", met);
  json& redacted = bundled.trial;
  RequireCellStays(trial, redacted, name);
  redacted["config_hash"] = ConfigHash(redacted["config"]);
  if (redacted.contains("system")) redacted["system_hash"] = ContentHash(redacted["system"]);
  std::string wrong = WhatIsWrongWithTrial(redacted);
  if (wrong.empty() && !redacted.contains("origin")) wrong = "origin: expected hexadecimal digits";
  if (!wrong.empty())
    SPARFUSE_THROW(kData, fmt::format("{}: what may leave of it is no trial: {}", name, wrong));
  bundled.id = redacted["trial_id"];
  config["trial_id"] = bundled.id;
  config["python_files"] = json::object();
  bundled.files["config.json"] =
      WrittenJson(Redact(config, ConfigForm(), private_names, "config.json", met));
  bundled.files["trial.json"] = WrittenJson(redacted);
  for (const std::string& file : leave) {
    if (SeriesFiles().contains(file)) bundled.files[file] = std::move(files[file]);
  }
  return bundled;
}

PrivateNames NamesOf(const Store& store, const std::vector<TrialRow>& rows) {
  PrivateNames names = PrivateNames::OfThisMachine();
  names.users.merge(UsersOf(store.results()));
  std::set<std::string> machines;  // trials of a cell share a text
  for (const TrialRow& row : rows) {
    if (!machines.insert(std::string(row.provenance.Text())).second) continue;
    PrivateNames hosts;
    hosts.AddHostsOf(row.provenance.Value());
    std::erase_if(hosts.hosts, IsNumberedHost);  // of a trial that was merged
    names.hosts.merge(hosts.hosts);
  }
  return names;
}

BundledTrial BundleTrial(const Store& store, const std::string& place, const PrivateNames& names,
                         Redactions& met) {
  const fs::path directory = store.Directory(place);
  std::map<std::string, std::string> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(directory, failed)) {
    const std::string file = entry.path().filename().string();
    if (file == "trial.json" || file == "config.json" || file == "outcome.json" ||
        SeriesFiles().contains(file)) {
      files[file] = ReadFile(entry.path());
    } else {
      // Of every rank one: failure-rank0.json
      const bool known = file == "log.txt" || file == "trace.json" || file == "session.txt";
      met.stays.insert(known                              ? file
                       : file.starts_with("failure-rank") ? "failure-rankR.json"
                       : file.starts_with("trace-rank")   ? "trace-rankR.json"
                                                          : "files of other names");
    }
  }
  if (failed)
    SPARFUSE_THROW(kData, fmt::format("cannot read {}: {}", directory.string(), failed.message()));
  return BundleFiles(std::move(files), directory.string(), names, met);
}

json BundleAnnotation(json annotation, const std::string& trial_id, const PrivateNames& names,
                      Redactions& met) {
  const PrivateNames nobody;
  const bool is_redacted = IsRedacted(annotation);
  annotation["trial_id"] = trial_id;
  if (!is_redacted) annotation["redaction"] = kRedaction;
  return Redact(annotation, AnnotationForm(), is_redacted ? nobody : names, "annotations", met);
}

}  // namespace sparfuse::harness
