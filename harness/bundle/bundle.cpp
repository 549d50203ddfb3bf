#include "harness/bundle/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/record.hpp"
#include "harness/store/evidence/series_file.hpp"

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
  const bool is_commit =
      commit.size() == 40 && std::all_of(commit.begin(), commit.end(), [](char c) {
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
  return IsPlaceInBundle(id, "-_.@+") && std::count(id.begin(), id.end(), '/') >= 2;
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

}  // namespace sparfuse::harness
