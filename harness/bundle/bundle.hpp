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

// The form of a bundle. Raised where a program that knows the earlier forms would misread it; what
// reads bundles reads every earlier version, too.
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
  // Reads the manifest and finds all members. Throws Error{kData} for a file that is no bundle, one
  // of a later version (with both versions and what reads it), one whose manifest was edited, and
  // one whose members are not those of the manifest.
  explicit Bundle(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept { return archive_.path(); }
  const BundleContent& content() const noexcept { return content_; }
  int version() const noexcept { return version_; }
  const SourceState& written_by() const noexcept { return written_by_; }

  // Throw Error{kData} where the bytes have another hash than the manifest says, or where they are
  // not what `export` writes: of another id, unredacted, with other keys.
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
