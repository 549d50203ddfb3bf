// Reads and writes bundles: archives of trials, annotations and the table that these make.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/bundle/archive.hpp"
#include "harness/bundle/bundled_trial.hpp"
#include "harness/store/trial_row.hpp"

namespace sparfuse::harness {

// The form of a bundle. It is raised if a program that knows only the earlier forms would misread
// the new one. Readers of bundles read every earlier version, too.
inline constexpr int kBundleVersion = 3;
inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kTableMember = "table.json";

struct BundleContent {
  std::map<std::string, std::map<std::string, std::string>> trials;  // SHA-256 by id, by file
  std::map<std::string, std::string> annotations;                    // by annotation_id
  std::string table;
};

// manifest.json. written_by: the program's source.
std::string ManifestText(const BundleContent& content, const SourceState& written_by);

class Bundle {
 public:
  // Reads the manifest and finds all members. Throws Error{kData} for a file that is no bundle, for
  // one of a later version (naming both versions and the program that reads it), for an edited
  // manifest, and for members that are not in the manifest or missing.
  explicit Bundle(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return archive_.path(); }
  const BundleContent& content() const noexcept { return content_; }
  int version() const noexcept { return version_; }
  const SourceState& written_by() const noexcept { return written_by_; }

  // Throw Error{kData} if the hash of the bytes is not the manifest's, or if `export` would not
  // write them so: another id, not redacted, other keys.
  BundledTrial Trial(const std::string& id) const;
  // The bytes of the trial's files, by name; of one that was looked at before, for the hashes are
  // all that is held against them.
  std::map<std::string, std::string> FilesOf(const std::string& id) const;
  harness::Annotation Annotation(const std::string& id) const;
  nlohmann::json Table() const;  // as TableOfTrials makes it; to be compared

 private:
  std::string Checked(const std::string& member, const std::string& hash) const;

  ArchiveReader archive_;
  BundleContent content_;
  SourceState written_by_;
  int version_ = 0;
  std::map<std::string, ArchiveMember> members_;
};

// "trials/ID/FILE", "annotations/ID.json"
std::string MemberOfTrial(const std::string& id, const std::string& file);
std::string MemberOfAnnotation(const std::string& id);

// The table of a bundle, from its trials alone: no experiment file, no catalog, no machine.
// [{"experiment", "part", "system", "hardware", "config", "revisions", "kind", "mode", "method",
// "workload", "workers", "trials": [ids], "set_aside": {id: why}, "metrics": {name: {"value",
// "low", "high", "n", "unit"}}}]: a row for every configuration, system and set of revisions of a
// part. A value is the one that `sparfuse table` shows for these trials: the geometric mean over
// blocks with its 95 % interval, or the arithmetic mean if a value is not above 0. "system"
// distinguishes clusters of like nodes ("HASH@ORIGIN", harness/store/origin.hpp). Blocks of two
// stores are two blocks; in bundles of version 1 they were one. It is JSON, because it is written,
// compared and printed in this form.
nlohmann::json TableOfTrials(std::vector<TrialRow> rows, int bundle_version);

// "" if two tables say the same, else the first difference: where, and both values. Numbers may
// differ by 1e-9, relative: another machine's logarithm rounds otherwise.
std::string FirstDifference(const nlohmann::json& stored, const nlohmann::json& computed);

struct ExportSummary {
  BundleContent content;
  std::set<std::string> stays;        // files, and keys of private.json, that do not leave
  std::vector<std::string> left_out;  // trials that do not leave, and why; sentences
};

// The content of a bundle of the store's trials: the first half of an export.
class Export {
 public:
  // `rows` are the trials to export, of Store::Rows. Says on standard error how far it is.
  Export(const Store& store, const std::vector<TrialRow>& rows, PrivateNames names);

  const ExportSummary& summary() const noexcept { return summary_; }
  // Writes the bundle; equal trials, annotations and `written_by` give equal bytes. Nothing is at
  // `out` before it is complete. Throws Error{kData} if a trial changes meanwhile, or if the
  // file cannot be written.
  void Write(const SourceState& written_by, const std::filesystem::path& out) const;

 private:
  const Store& store_;
  TextScrubber scrubber_;
  ExportSummary summary_;
  std::map<std::string, std::string> annotations_;  // their text, by id
  std::string table_;
};

}  // namespace sparfuse::harness
