// Finds the files of profiles and declared clusters, and names the clusters that have none.
#pragma once

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace sparfuse::harness {

// Clusters with a profile of this machine: all ranks on this machine, sharing its cores, or a
// machine like this one for every rank.
inline constexpr const char* kThisMachine = "this-machine";
inline constexpr const char* kOwnClusters[] = {kThisMachine, "machines-like-this"};
inline bool IsOwnCluster(const std::string& cluster) {
  return std::any_of(std::begin(kOwnClusters), std::end(kOwnClusters),
                     [&](const char* own) { return cluster == own; });
}

// Folders next to the clusters' files: the inputs of a cluster's software, by its name, and whole
// clusters to begin with (cluster_text.hpp).
inline constexpr const char* kStacksFolder = "stacks";
inline constexpr const char* kPresetsFolder = "presets";

// The folders that are searched for profiles and clusters, in this order: the user's folder if
// there is one, the results folder's, and the project's.
class ProfileFolders {
 public:
  template <std::convertible_to<std::filesystem::path> Folder>
  ProfileFolders(const Folder& only) : folders_{std::filesystem::path(only)} {}
  // Each folder once, at least one. New files go to the first.
  ProfileFolders(std::initializer_list<std::filesystem::path> folders) {
    for (const std::filesystem::path& folder : folders) {
      if (!folder.empty() && std::ranges::find(folders_, folder) == folders_.end())
        folders_.push_back(folder);
    }
  }

  // The first file of this name ("safusion-local.toml"). If there is none, its path in the first
  // folder.
  std::filesystem::path File(const std::string& name) const;
  bool Has(const std::string& name) const;
  // Names without the extension (".toml"), sorted; of a folder beneath each ("stacks"), or of
  // themselves. What imports of traces keep, NAME.trace.json, is no profile.
  std::vector<std::string> Names(std::string_view extension, std::string_view beneath = {}) const;
  const std::filesystem::path& own() const { return folders_.front(); }
  // The folders of published numbers beside the user's profiles and the project's; the same if
  // there is one folder.
  std::filesystem::path PublishedOfUser() const { return Beside(folders_[passing_]); }
  std::filesystem::path PublishedOfProject() const { return Beside(folders_.back()); }
  // "a, b", for errors.
  std::string Text() const;
  // Returns these folders with `first` before them.
  ProfileFolders Behind(const std::filesystem::path& first) const;

 private:
  static std::filesystem::path Beside(const std::filesystem::path& profiles) {
    return (profiles / "../published").lexically_normal();
  }

  std::vector<std::filesystem::path> folders_;
  std::size_t passing_ = 0;  // folders of Behind
};

// A cluster's file, and the workloads whose references do not calibrate it if its name ends in "
// without WORKLOAD, WORKLOAD".
struct ClusterName {
  std::string file;  // without extension
  std::vector<std::string> left_out;

  static ClusterName Of(const std::string& cluster);
  // " without ...", or "".
  std::string Rest() const;
};

// Throws Error{kConfig} if no file has this name and it is not one of the machine's own clusters.
void NeedCluster(const ProfileFolders& profiles, const std::string& name);

// The file of a declared cluster. Throws Error{kConfig} if there is none of the name.
std::filesystem::path FileOfDeclared(const ProfileFolders& profiles, const std::string& cluster);
// Throws Error{kConfig} if an import may not write to the file: it belongs to the project, and
// results lie elsewhere.
void NeedOwn(const ProfileFolders& profiles, const std::filesystem::path& file);

}  // namespace sparfuse::harness
