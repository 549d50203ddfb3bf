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

// Clusters whose profile is measured here: all ranks on this machine, sharing its cores; and a
// machine like this one for every rank.
inline constexpr const char* kThisMachine = "this-machine";
inline constexpr const char* kOwnClusters[] = {kThisMachine, "machines-like-this"};
inline bool IsOwnCluster(const std::string& cluster) {
  return std::any_of(std::begin(kOwnClusters), std::end(kOwnClusters),
                     [&](const char* own) { return cluster == own; });
}

// Folders beside the clusters' files: the costs of a cluster's software, by its name; and whole
// clusters to begin with (cluster_presets.hpp).
inline constexpr const char* kStacksFolder = "stacks";
inline constexpr const char* kPresetsFolder = "presets";

// Where profiles and clusters are looked for, in this order: a folder of the user's where there is
// one, the results folder's, and those that the project comes with.
class ProfileFolders {
 public:
  template <std::convertible_to<std::filesystem::path> Folder>
  ProfileFolders(const Folder& only) : folders_{std::filesystem::path(only)} {}
  // Each once; at least one, the first of which new files go to.
  ProfileFolders(std::initializer_list<std::filesystem::path> folders) {
    for (const std::filesystem::path& folder : folders) {
      if (!folder.empty() && std::ranges::find(folders_, folder) == folders_.end())
        folders_.push_back(folder);
    }
  }

  // The first file of this name ("safusion-local.toml"); where there is none, its place among the
  // own ones.
  std::filesystem::path File(const std::string& name) const;
  bool Has(const std::string& name) const;
  // Names without the extension (".toml"), sorted; of a folder beneath each ("stacks"), or of
  // themselves. What imports of traces keep, NAME.trace.json, is no profile.
  std::vector<std::string> Names(std::string_view extension, std::string_view beneath = {}) const;
  const std::filesystem::path& own() const { return folders_.front(); }
  // "a, b", for errors.
  std::string Text() const;
  // With a folder whose files come first.
  ProfileFolders Behind(const std::filesystem::path& first) const;

 private:
  std::vector<std::filesystem::path> folders_;
};

// A cluster's file and, where its name goes on " without WORKLOAD, WORKLOAD", of which workloads
// the references of that file do not calibrate.
struct ClusterName {
  std::string file;  // without extension
  std::vector<std::string> left_out;

  static ClusterName Of(const std::string& cluster);
  // " without ...", or "".
  std::string Rest() const;
};

// Throws Error{kConfig} where no file is of this name and it is none of the machine's own.
void NeedCluster(const ProfileFolders& profiles, const std::string& name);

// The file of a declared cluster. Throws Error{kConfig} where there is none of the name.
std::filesystem::path FileOfDeclared(const ProfileFolders& profiles, const std::string& cluster);
// Throws Error{kConfig} where an import may not write: one of the project's files, where results
// lie elsewhere, is everybody's.
void NeedOwn(const ProfileFolders& profiles, const std::filesystem::path& file);

}  // namespace sparfuse::harness
