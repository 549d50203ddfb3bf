#include "harness/bundle/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"
#include "harness/report/machines.hpp"
#include "harness/report/results.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/evidence/series_file.hpp"
#include "harness/store/origin.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "sparfuse bundle";
constexpr const char* kOwnHash = "manifest_sha256";

// The content of manifest.json.
struct Manifest : BundleContent {
  std::string format = kFormat;
  int bundle_version = kBundleVersion;
  SourceState written_by = {};
  std::string manifest_sha256 = {};  // hash of the rest of the manifest
};

}  // namespace

template <>
RecordKeys KeysOf<Manifest>() {
  using M = Manifest;
  static constexpr auto kKeys = KeyTable<M>(
      Key<&M::format>({.name = "format"}), Key<&M::bundle_version>({.name = "bundle_version"}),
      Key<&M::written_by>({.name = "written_by"}), Key<&M::trials, M>({.name = "trials"}),
      Key<&M::annotations, M>({.name = "annotations"}), Key<&M::table, M>({.name = "table"}),
      Key<&M::manifest_sha256>({.name = kOwnHash}));
  return kKeys;
}

namespace {

std::string OwnHash(json manifest) {
  manifest.erase(kOwnHash);
  return ContentHash(manifest);
}

[[noreturn]] void Refuse(const std::filesystem::path& path, const std::string& why) {
  SPARFUSE_THROW(kData, fmt::format("{}: {}", path.string(), why));
}

// The version of the program that can read a bundle of a later version.
std::string WhatReads(const json& manifest, const std::filesystem::path& path) {
  const json by = manifest.value("written_by", json::object());
  const std::string commit = by.is_object() && by.value("commit", json()).is_string()
                                 ? by["commit"].get<std::string>()
                                 : "";
  const bool is_commit = commit.size() == 40 && std::ranges::all_of(commit, [](char c) {
                           return std::isxdigit(static_cast<unsigned char>(c)) != 0;
                         });
  return fmt::format("`git pull && ./scripts/setup && ./sparfuse verify {}`{}", path.string(),
                     is_commit ? ", or the same at commit " + commit + ", which wrote it" : "");
}

void CheckVersion(const json& manifest, const std::filesystem::path& path) {
  if (!manifest.is_object() || manifest.value("format", json()) != kFormat)
    Refuse(path, fmt::format("manifest.json: format: expected \"{}\"", kFormat));
  const json version = manifest.value("bundle_version", json());
  if (!version.is_number_integer() || version < 1)
    Refuse(path, "manifest.json: bundle_version: expected an integer above 0");
  if (version > kBundleVersion) {
    Refuse(path,
           fmt::format("bundle_version {}: this sparfuse reads 1 to {}; a newer one reads it: {}",
                       version.dump(), kBundleVersion, WhatReads(manifest, path)));
  }
  if (manifest.value(kOwnHash, json()) != OwnHash(manifest))
    Refuse(path, "manifest.json was edited or damaged: its hash differs");
}

bool IsSha256(const std::string& hash) { return hash.size() == 64; }

// Whether `id` stands for one place under a folder, whatever the folder contains. `others`: allowed
// characters beside letters and digits.
bool IsPlaceInBundle(const std::string& id, std::string_view others) {
  bool begins = true;  // a component of the path
  for (const char c : id) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       others.find(c) != std::string_view::npos;
    if ((begins && (c == '.' || c == '/')) || (!plain && c != '/')) return false;
    begins = c == '/';
  }
  return !begins && id.size() <= 4096;
}

// Whether an experiment, a part and a trial may form this id.
bool IsTrialId(const std::string& id) {
  return IsPlaceInBundle(id, "-_.@+") && std::ranges::count(id, '/') >= 2;
}

bool IsAnnotationId(const std::string& id) {
  return IsPlaceInBundle(id, "-_.@+:") && id.find('/') == std::string::npos;
}

bool IsFileOfTrial(const std::string& file) {
  return file == "trial.json" || file == "config.json" || file == "outcome.json" ||
         SeriesFiles().contains(file);
}

void CheckContent(const BundleContent& content, const std::filesystem::path& path) {
  const auto expect = [&](bool good, const std::string& what) {
    if (!good) Refuse(path, "manifest.json: " + what);
  };
  expect(IsSha256(content.table), "table: expected a hash");
  for (const auto& [id, files] : content.trials) {
    expect(IsTrialId(id) && files.contains("trial.json") && files.contains("config.json"),
           fmt::format("trials: \"{}\": expected a trial's id with its files", id));
    for (const auto& [file, hash] : files) {
      expect(IsFileOfTrial(file) && IsSha256(hash),
             fmt::format("trials: {}: {}: expected a file of a trial, and its hash", id, file));
    }
    for (std::size_t at = id.rfind('/'); at != std::string::npos; at = id.rfind('/', at - 1)) {
      expect(!content.trials.contains(id.substr(0, at)),
             fmt::format("trials: \"{}\": expected no trial beneath another", id));
    }
  }
  for (const auto& [id, hash] : content.annotations) {
    expect(IsAnnotationId(id) && IsSha256(hash),
           fmt::format("annotations: \"{}\": expected an id and a hash", id));
  }
}

// The names of exactly the members that belong to the bundle.
std::set<std::string> NamesOf(const BundleContent& content) {
  std::set<std::string> names = {kManifest, kTableMember};
  for (const auto& [id, files] : content.trials) {
    for (const auto& [file, hash] : files) names.insert(MemberOfTrial(id, file));
  }
  for (const auto& [id, hash] : content.annotations) names.insert(MemberOfAnnotation(id));
  return names;
}

}  // namespace

std::string MemberOfTrial(const std::string& id, const std::string& file) {
  return "trials/" + id + "/" + file;
}

std::string MemberOfAnnotation(const std::string& id) { return "annotations/" + id + ".json"; }

std::string ManifestText(const BundleContent& content, const SourceState& written_by) {
  Manifest manifest{content};
  manifest.written_by = written_by;
  json written = WriteRecord(manifest);
  written[kOwnHash] = OwnHash(written);
  return WrittenJson(written);
}

Bundle::Bundle(const std::filesystem::path& path) : archive_(path) {
  const std::string text = archive_.First(kManifest);
  const json manifest = ParseJson(text, path.string() + ": manifest.json");
  CheckVersion(manifest, path);
  if (text != WrittenJson(manifest)) Refuse(path, "manifest.json was edited: its form differs");
  Manifest read;
  ReadRecord(manifest, KeyPlace(path.string() + ": manifest.json"), read);
  CheckContent(read, path);
  content_ = read;
  version_ = read.bundle_version;
  written_by_ = read.written_by;
  const std::set<std::string> expected = NamesOf(content_);
  for (ArchiveMember& member : archive_.Members()) {
    if (!expected.contains(member.name))
      Refuse(path, fmt::format("{}: the manifest does not name it", member.name));
    members_[member.name] = member;
  }
  for (const std::string& name : expected) {
    if (!members_.contains(name))
      Refuse(path, fmt::format("it has no {}, which its manifest names", name));
  }
}

std::string Bundle::Checked(const std::string& member, const std::string& hash) const {
  std::string bytes = archive_.Content(members_.at(member));
  if (Sha256Hex(bytes) != hash) {
    Refuse(path(), fmt::format("{}: SHA-256 {:.12}, the manifest has {:.12}: edited or damaged",
                               member, Sha256Hex(bytes), hash));
  }
  return bytes;
}

std::map<std::string, std::string> Bundle::FilesOf(const std::string& id) const {
  std::map<std::string, std::string> files;
  for (const auto& [file, hash] : content_.trials.at(id))
    files[file] = Checked(MemberOfTrial(id, file), hash);
  return files;
}

BundledTrial Bundle::Trial(const std::string& id) const {
  const std::map<std::string, std::string> files = FilesOf(id);
  const std::string name = fmt::format("{}: trials/{}", path().string(), id);
  const BundledTrial trial = BundleFiles(files, name, TextScrubber());
  if (trial.id() != id)
    Refuse(path(),
           fmt::format("trials/{}: trial_id: expected its place, found {}", id, trial.id()));
  const std::string within = fmt::format("{}/{}/", trial.trial.experiment, trial.trial.part);
  if (!id.starts_with(within) || id.find('/', within.size()) != std::string::npos)
    Refuse(path(), fmt::format("trials/{}: expected an id {}NAME", id, within));
  if (trial.files != files)
    Refuse(path(), fmt::format("trials/{}: expected the keys that `export` writes", id));
  return trial;
}

harness::Annotation Bundle::Annotation(const std::string& id) const {
  const std::string member = MemberOfAnnotation(id), name = path().string() + ": " + member;
  const std::string text = Checked(member, content_.annotations.at(id));
  harness::Annotation annotation = AnnotationOf(ParseJson(text, name), name);
  const bool good =
      annotation.annotation_id == id && annotation.redaction > 0 &&
      WrittenJson(ToJson(BundleAnnotation(annotation, annotation.trial_id, TextScrubber()))) ==
          text;
  if (!good) SPARFUSE_THROW(kData, name + ": expected an annotation that `export` wrote");
  return annotation;
}

json Bundle::Table() const {
  return ParseJson(Checked(kTableMember, content_.table), path().string() + ": " + kTableMember);
}

namespace {

constexpr double kMostRelative = 1e-9;

struct TableRow {
  const TrialRow* any = nullptr;
  CellResult cell;
};

// JSON has no infinity, which is an end of one block's interval.
json Finite(double value) { return std::isfinite(value) ? json(value) : json(); }

json MetricsOf(const CellResult& cell) {
  std::map<std::string, std::string> units;
  for (const auto& [block, trial] : cell.trials) {
    for (const auto& [name, value] : trial->metrics)
      units[std::string(name)] = trial->units.at(name);
  }
  json metrics = json::object();
  for (const auto& [name, unit] : units) {
    auto interval = cell.Over(name);
    if (!interval) interval = cell.Average(name);
    if (!interval) continue;  // only disturbed trials have it
    metrics[name] = {{"value", Finite(interval->value)},
                     {"low", Finite(interval->low)},
                     {"high", Finite(interval->high)},
                     {"n", cell.Values(name).size()},
                     {"unit", unit}};
  }
  return metrics;
}

json RowJson(const TableRow& row) {
  const TrialRow& any = *row.any;
  json trials = json::array();
  for (const auto& [block, trial] : row.cell.trials) trials.push_back(trial->trial_id);
  json set_aside = json::object();
  for (const TrialRow* trial : row.cell.set_aside) set_aside[trial->trial_id] = FailureOf(*trial);
  return {{"experiment", any.experiment},
          {"part", any.part},
          {"system", ShownMachine(any.system_hash)},
          {"hardware", HardwareLine(any.system)},
          {"config", any.config_hash.substr(0, 12)},
          {"revisions", ShortHash(CanonicalJson(any.revisions))},
          {"kind", any.kind},
          {"mode", any.mode},
          {"method", any.method},
          {"workload", any.workload},
          {"workers", any.workers},
          {"trials", trials},
          {"set_aside", set_aside},
          {"metrics", MetricsOf(row.cell)}};
}

std::string DifferenceAt(const std::string& where, const json& stored, const json& computed) {
  const std::string said = fmt::format("{}: the bundle has {}, its trials give {}", where,
                                       stored.dump(), computed.dump());
  if (stored.is_number() && computed.is_number()) {
    const double a = stored, b = computed;
    return std::abs(a - b) <= kMostRelative * std::max(std::abs(a), std::abs(b)) ? "" : said;
  }
  if (stored.type() != computed.type()) return said;
  if (stored.is_object() || stored.is_array()) {
    if (stored.size() != computed.size())
      return fmt::format("{}: the bundle has {} entries, its trials give {}", where, stored.size(),
                         computed.size());
    if (stored.is_array()) {
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const std::string found =
            DifferenceAt(fmt::format("{}/{}", where, i), stored[i], computed[i]);
        if (!found.empty()) return found;
      }
      return "";
    }
    for (const auto& [key, value] : stored.items()) {
      if (!computed.contains(key)) return fmt::format("{}: its trials give no {}", where, key);
      const std::string found = DifferenceAt(where + "/" + key, value, computed[key]);
      if (!found.empty()) return found;
    }
    return "";
  }
  return stored == computed ? "" : said;
}

}  // namespace

json TableOfTrials(std::vector<TrialRow> rows, int bundle_version) {
  SortByAge(rows);
  if (bundle_version > 1) TellStoresApart(rows, "");
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, TableRow>
      table;
  for (const TrialRow& row : rows) {
    TableRow& entry = table[{row.experiment, row.part, row.config_hash, row.system_hash,
                             std::string(row.revisions.Text())}];
    entry.any = &row;
    AddTrial(entry.cell, row);
  }
  json made = json::array();
  for (const auto& [key, row] : table) made.push_back(RowJson(row));
  return made;
}

std::string FirstDifference(const json& stored, const json& computed) {
  return DifferenceAt("table.json", stored, computed);
}

Export::Export(const Store& store, const std::vector<TrialRow>& rows, PrivateNames names)
    : store_(store), scrubber_(std::move(names)) {
  std::vector<TrialRow> leaving;
  Patience patience;
  for (const TrialRow& row : rows) {
    patience.Note(leaving.size(), "trials looked through", rows.size());
    try {
      const BundledTrial trial = BundleTrial(store, row.trial_id, scrubber_, summary_.stays);
      if (trial.id() != row.trial_id)
        SPARFUSE_THROW(kData, fmt::format("{}: its id is not the path of a trial", row.trial_id));
      const Recomputed numbers = RecomputeMetrics(trial.trial, trial.files);
      if (!numbers.differs.empty())
        SPARFUSE_THROW(kData, fmt::format("{}: {}: its receivers would refuse it", row.trial_id,
                                          numbers.differs));
      summary_.content.trials[trial.id()] = trial.Hashes();
      leaving.push_back(RowOf(trial.trial));
    } catch (const Error& error) {
      summary_.left_out.push_back(error.what());
    }
  }
  std::map<std::string, std::vector<std::string>> reasons;  // by trial
  for (const Annotation& annotation : store.ReadAnnotations(summary_.left_out)) {
    if (!summary_.content.trials.contains(annotation.trial_id)) continue;
    const Annotation leaves = BundleAnnotation(annotation, annotation.trial_id, scrubber_);
    if (leaves.annotation_id != annotation.annotation_id) {
      summary_.left_out.push_back(
          fmt::format("annotations/{}.json: its id is not one word", annotation.annotation_id));
      continue;
    }
    const std::string& id = leaves.annotation_id;
    annotations_[id] = WrittenJson(ToJson(leaves));
    summary_.content.annotations[id] = Sha256Hex(annotations_[id]);
    reasons[leaves.trial_id].push_back(leaves.reason);
  }
  for (TrialRow& row : leaving) {
    if (const auto found = reasons.find(row.trial_id); found != reasons.end())
      row.annotations = found->second;
  }
  table_ = WrittenJson(TableOfTrials(std::move(leaving), kBundleVersion));
  summary_.content.table = Sha256Hex(table_);
}

void Export::Write(const SourceState& written_by, const std::filesystem::path& out) const {
  // By member name, in the order of archives, with id and file.
  std::map<std::string, std::pair<std::string, std::string>> members = {{kTableMember, {}}};
  for (const auto& [id, files] : summary_.content.trials) {
    for (const auto& [file, hash] : files) members[MemberOfTrial(id, file)] = {id, file};
  }
  for (const auto& [id, text] : annotations_) members[MemberOfAnnotation(id)] = {id, ""};
  ArchiveWriter archive(out);
  archive.Add(kManifest, ManifestText(summary_.content, written_by));
  BundledTrial trial;  // trial of the last member
  std::set<std::string> stays;
  Patience patience;
  std::size_t written = 0;
  for (const auto& [member, of] : members) {
    const auto& [id, file] = of;
    if (member == kTableMember) {
      archive.Add(member, table_);
    } else if (file.empty()) {
      archive.Add(member, annotations_.at(id));
    } else {
      if (trial.id() != id) {
        patience.Note(written++, "trials written", summary_.content.trials.size());
        trial = BundleTrial(store_, id, scrubber_, stays);
        if (trial.Hashes() != summary_.content.trials.at(id)) {
          SPARFUSE_THROW(kData, fmt::format("{} has changed while it was exported: run the command "
                                            "again",
                                            store_.Directory(id).string()));
        }
      }
      archive.Add(member, trial.files.at(file));
    }
  }
  archive.Commit();
}

}  // namespace sparfuse::harness
