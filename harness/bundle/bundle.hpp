// Reads bundles: archives of trials, annotations and the table that these make.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/bundle/archive.hpp"
#include "harness/bundle/bundled_trial.hpp"

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

}  // namespace sparfuse::harness
