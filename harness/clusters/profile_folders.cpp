#include "harness/clusters/profile_folders.hpp"

#include <algorithm>
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
      if (entry.path().extension() == extension) names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::string ProfileFolders::Text() const {
  std::string text;
  for (const fs::path& folder : folders_) text += (text.empty() ? "" : ", ") + folder.string();
  return text;
}

void NeedCluster(const ProfileFolders& profiles, const std::string& cluster) {
  std::vector<std::string> known(std::begin(kOwnClusters), std::end(kOwnClusters));
  for (const char* extension : {".json", ".toml"}) {
    for (std::string& name : profiles.Names(extension)) known.push_back(std::move(name));
  }
  for (std::string& name : FingerprintNames(profiles)) known.push_back(std::move(name));
  if (std::ranges::find(known, cluster) != known.end()) return;
  SPARFUSE_THROW(kConfig, "unknown cluster \"" + cluster + "\"" + Suggestion(cluster, known) +
                              "; files are looked for in " + profiles.Text() +
                              ", fingerprints in systems beside");
}

}  // namespace sparfuse::harness
