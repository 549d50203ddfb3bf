#include "harness/clusters/profile_folders.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;

fs::path ProfileFolders::File(const std::string& name) const {
  for (const fs::path& folder : folders_) {
    const fs::path file = (folder / name).lexically_normal();  // "../": the folder may be missing
    if (SomethingIsAt(file)) return file;
  }
  return (own() / name).lexically_normal();
}

bool ProfileFolders::Has(const std::string& name) const { return SomethingIsAt(File(name)); }

std::vector<std::string> ProfileFolders::Names(std::string_view extension,
                                               std::string_view beneath) const {
  std::set<std::string> names;
  for (const fs::path& folder : folders_) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator((folder / beneath).lexically_normal(), none)) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() == extension && !name.ends_with(".trace")) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

ProfileFolders ProfileFolders::Behind(const fs::path& first) const {
  ProfileFolders made(*this);
  made.folders_.insert(made.folders_.begin(), first);
  ++made.passing_;
  return made;
}

std::string ProfileFolders::Text() const {
  std::string text;
  for (const fs::path& folder : folders_) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

ClusterName ClusterName::Of(const std::string& cluster) {
  constexpr std::string_view kWithout = " without ", kComma = ", ";
  const auto at = cluster.find(kWithout);
  if (at == std::string::npos) return {cluster, {}};
  ClusterName name{cluster.substr(0, at), {}};
  for (std::size_t begin = at + kWithout.size(); begin <= cluster.size();) {
    const std::size_t end = std::min(cluster.find(kComma, begin), cluster.size());
    name.left_out.push_back(cluster.substr(begin, end - begin));
    begin = end + kComma.size();
  }
  return name;
}

std::string ClusterName::Rest() const {
  return left_out.empty() ? "" : fmt::format(" without {}", fmt::join(left_out, ", "));
}

namespace {

// For an error: the remedy if the name is a preset's. A preset is the draft of a cluster and no
// cluster.
std::string PresetRemedy(const ProfileFolders& profiles, const std::string& cluster) {
  const std::vector<std::string> presets = profiles.Names(".toml", kPresetsFolder);
  if (std::ranges::find(presets, cluster) == presets.end()) return "";
  return fmt::format(
      "; it is a preset, and `sparfuse cluster new NAME --preset {}` makes a cluster of it",
      cluster);
}

}  // namespace

void NeedCluster(const ProfileFolders& profiles, const std::string& name) {
  const std::string cluster = ClusterName::Of(name).file;
  std::vector<std::string> known(std::begin(kOwnClusters), std::end(kOwnClusters));
  for (const char* extension : {".json", ".toml"}) {
    for (std::string& each : profiles.Names(extension)) known.push_back(std::move(each));
  }
  for (std::string& each : FingerprintNames(profiles)) known.push_back(std::move(each));
  if (std::ranges::find(known, cluster) != known.end()) return;
  const std::string remedy = PresetRemedy(profiles, cluster);
  if (!remedy.empty()) SPARFUSE_THROW(kConfig, "unknown cluster \"" + cluster + "\"" + remedy);
  const std::string suggestion = Suggestion(cluster, known);
  SPARFUSE_THROW(kConfig, "unknown cluster \"" + cluster + "\"" + suggestion +
                              (suggestion.ends_with('?') ? "" : ".") + " Its file may be in " +
                              profiles.Text() +
                              ", or, for a fingerprint, in the folder systems next to these");
}

fs::path FileOfDeclared(const ProfileFolders& profiles, const std::string& cluster) {
  const std::vector<std::string> known = profiles.Names(".toml");
  if (std::ranges::find(known, cluster) == known.end()) {
    SPARFUSE_THROW(kConfig, "unknown declared cluster \"" + cluster + "\"" +
                                PresetRemedy(profiles, cluster) + Suggestion(cluster, known) +
                                "; sparfuse cluster new makes one");
  }
  return profiles.File(cluster + ".toml");
}

void NeedOwn(const ProfileFolders& profiles, const fs::path& file) {
  if (file.parent_path() == profiles.own()) return;
  SPARFUSE_THROW(kConfig, file.string() + " is the project's, not of " + profiles.own().string() +
                              ": expected a copy there under another name, or --print, which "
                              "changes nothing");
}

}  // namespace sparfuse::harness
