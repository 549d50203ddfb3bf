#include "harness/clusters/profile_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/base/error.hpp"
#include "harness/catalog/revisions.hpp"
#include "harness/clusters/measured/fingerprint_file.hpp"
#include "harness/clusters/measured/profile_kind.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSubject[] = {"workload", "workload_options", "batch_per_worker",
                                    "threads_per_worker"};

bool SameSubject(const json& a, const json& b) {
  return std::all_of(std::begin(kSubject), std::end(kSubject),
                     [&](const char* key) { return a.at(key) == b.at(key); });
}

bool SameMeasurement(const json& a, const json& b) {
  const json& link = a.at("link");
  const bool within = StoredLink(link).value_or(LinkShape()).has_within();
  return SameSubject(a, b) && a.at("workers") == b.at("workers") && link == b.at("link") &&
         (!within || a.at("ranks_per_node") == b.at("ranks_per_node"));
}

// What makes two machines unlike; a kernel of the operating system does not.
json MachineOf(json system) {
  system.erase("kernel");
  return system;
}

// As they were measured, no time has more digits.
json Rounded(const json& value) {
  if (value.is_number_float()) {
    return std::strtod(fmt::format("{:.6g}", value.get<double>()).c_str(), nullptr);
  }
  if (!value.is_structured()) return value;
  json rounded = value;
  for (json& element : rounded) element = Rounded(element);
  return rounded;
}

// What a file holds, in its form.
json OutcomesFrom(json outcomes, const std::string& name) {
  if (!outcomes.is_array()) outcomes = json::array({std::move(outcomes)});
  for (const json& outcome : outcomes) {
    if (!outcome.is_object() || !outcome.contains("config") || !outcome.contains("profile")) {
      SPARFUSE_THROW(kData, fmt::format("{}: expected an array of outcomes of profile trials, each "
                                        "with \"config\" and \"profile\"",
                                        name));
    }
    for (const char* key : {"workload", "workload_options", "batch_per_worker",
                            "threads_per_worker", "workers", "link"}) {
      if (outcome["config"].contains(key)) continue;
      SPARFUSE_THROW(kData, fmt::format("{}: the config of an outcome lacks \"{}\"", name, key));
    }
  }
  return outcomes;
}

}  // namespace

fs::path ProfileFile(const fs::path& folder, const std::string& name) {
  const bool good = !name.empty() && name.front() != '.' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return std::isalnum(c) || c == '.' || c == '_' || c == '-';
                    });
  if (!good) {
    SPARFUSE_THROW(kConfig, fmt::format("profile name \"{}\": expected letters, digits, '.', '_' "
                                        "and '-', the first not '.'",
                                        name));
  }
  return folder / (name + ".json");
}

json ReadProfiles(const fs::path& file) { return ProfilesFrom(ReadJsonFile(file), file.string()); }

json ProfilesFrom(json content, const std::string& name) {
  json outcomes = OutcomesFrom(std::move(content), name);
  for (json& outcome : outcomes) outcome = CheckedKind(std::move(outcome), name);
  return outcomes;
}

int VouchForProfiles(const fs::path& file) {
  json outcomes = OutcomesFrom(ReadJsonFile(file), file.string());
  int without = 0;
  for (json& outcome : outcomes) {
    without += !outcome.contains("kind") && !outcome.contains("digest");
    outcome = Vouched(std::move(outcome), file.string());
  }
  if (without > 0) WriteProfiles(file, outcomes);
  return without;
}

bool IsOfSubject(const json& outcome, const json& config) {
  return SameSubject(outcome.at("config"), config);
}

json ProfilesOf(const json& outcomes, const CellConfig& config) {
  const json wanted = ToJson(config);
  json found = json::array();
  for (const json& outcome : outcomes) {
    if (IsOfSubject(outcome, wanted)) found.push_back(outcome);
  }
  if (found.empty()) return found;
  for (const json& outcome : outcomes) {
    if (IsFingerprint(outcome)) found.push_back(outcome);
  }
  return found;
}

std::string SubjectName(const CellConfig& config) {
  std::string name = fmt::format("{} with batch {} and {} thread(s) a rank", config.workload,
                                 config.batch_per_worker, config.threads_per_worker);
  if (config.device != Place::kCpu) name += ", " + NameOf(config.device);
  if (config.precision != Precision::kFp32) name += ", " + NameOf(config.precision);
  return name;
}

CellConfig MeasuredLike(const json& outcomes, CellConfig config) {
  if (outcomes.empty()) return config;
  const json& measured = outcomes.front().at("config");
  if (measured.value("device", "") == NameOf(Place::kCuda)) config.device = Place::kCuda;
  const json precision = measured.value("precision", json());
  for (const Precision each : {Precision::kBf16, Precision::kTf32}) {
    if (precision == NameOf(each)) config.precision = each;
  }
  return config;
}

std::string MeasureCommand(const CellConfig& config, const std::string& name) {
  std::string command = fmt::format("sparfuse profile {} --batch {} --threads {}", config.workload,
                                    config.batch_per_worker, config.threads_per_worker);
  if (config.link) {
    command += fmt::format(" --link {}:{}", config.link->gbps, config.link->alpha_us);
    if (config.link->has_within()) {
      command += fmt::format(":{}:{} --ranks-per-node {}", config.link->intra_node_gbps,
                             config.link->intra_node_us, config.ranks_per_node);
    }
  }
  if (config.device != Place::kCpu) command += " --device " + NameOf(config.device);
  if (config.precision != Precision::kFp32) command += " --precision " + NameOf(config.precision);
  return name.empty() ? command : command + " --name " + name;
}

json ProfileOutcome(const fs::path& directory) {
  const json measured = ReadJsonFile(directory / "outcome.json");
  const json trial = ReadJsonFile(directory / "trial.json");
  json outcome;
  for (const char* key : {"status", "machine", "n", "profile", "sampling"}) {
    outcome[key] = measured.at(key);
  }
  outcome["machine"].erase("placement");
  for (const char* key :
       {"config", "system", "software", "source", "revisions", "started_utc", "seconds"}) {
    outcome[key] = trial.at(key);
  }
  return outcome;
}

bool IsOfMachine(const json& outcome, const json& system) {
  return outcome.contains("system") && system.is_object() &&
         WhatDiffers(MachineOf(outcome["system"]), MachineOf(system)).empty();
}

void CheckSameMachine(const fs::path& file, const json& outcomes, const json& system) {
  for (const json& outcome : outcomes) {
    const std::string differs =
        WhatDiffers(MachineOf(outcome.value("system", json::object())), MachineOf(system));
    if (differs.empty()) continue;
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} was measured on another machine ({}): expected another name",
                               file.string(), differs));
  }
}

const json* FindMeasured(const fs::path& file, const json& outcomes, const CellConfig& config) {
  const json wanted = ToJson(config);
  const auto found = std::find_if(outcomes.begin(), outcomes.end(), [&](const json& outcome) {
    return SameMeasurement(outcome.at("config"), wanted);
  });
  if (found == outcomes.end()) return nullptr;
  const std::string differs = WhatDiffers(found->at("config"), Rounded(wanted));
  if (differs.empty()) return &*found;
  SPARFUSE_THROW(
      kConfig,
      fmt::format(
          "{} has {}, {} rank(s), link {}, measured in another way ({}): expected the same, "
          "another --name, or --fresh to measure again and replace it",
          file.string(), SubjectName(config), config.workers,
          config.link ? wanted["link"].dump() : "its own", differs));
}

void PutProfile(json& outcomes, const json& measured) {
  for (json& there : outcomes) {
    if (!SameMeasurement(there.at("config"), measured.at("config"))) continue;
    there = measured;
    return;
  }
  outcomes.push_back(measured);
}

void WriteProfiles(const fs::path& file, const json& outcomes) {
  std::string text = "[";
  for (const json& outcome : outcomes) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += WithKind(Rounded(outcome)).dump();
  }
  MakeDirectories(file.parent_path());
  WriteFileDurably(file, text + "\n]\n");
}

}  // namespace sparfuse::harness
