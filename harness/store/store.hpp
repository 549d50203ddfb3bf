// Keeps the results folder: trial directories that are finished or do not exist, annotations, the
// index.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/clusters/profile_folders.hpp"
#include "harness/store/index.hpp"

namespace sparfuse::harness {

// Held by whoever writes to a results folder.
class StoreLock {
 public:
  // Throws Error{kConfig} naming the process that holds it.
  explicit StoreLock(const std::filesystem::path& results);
  // As the constructor, but null where another process holds it.
  static std::unique_ptr<StoreLock> TryLock(const std::filesystem::path& results);
  ~StoreLock();
  StoreLock(const StoreLock&) = delete;
  StoreLock& operator=(const StoreLock&) = delete;

 private:
  explicit StoreLock(int fd) : fd_(fd) {}
  int fd_;
};

// Where trials and annotations lie: reads need no lock, what writes takes one as a witness.
class Store {
 public:
  explicit Store(const std::filesystem::path& results)
      : results_(results), profiles_(results / "profiles") {}
  Store(const std::filesystem::path& results, const std::filesystem::path& project_profiles)
      : results_(results), profiles_(results / "profiles", project_profiles) {}

  const std::filesystem::path& results() const noexcept { return results_; }
  std::filesystem::path trials() const { return results_ / "trials"; }
  const ProfileFolders& profiles() const noexcept { return profiles_; }
  std::filesystem::path index_path() const { return results_ / "index.sqlite"; }

  // Makes the directory of a new trial beneath trials(). `stem` is without the number that makes it
  // new. Returns the trial's id, its path relative to trials().
  std::string CreateTrial(const StoreLock&, const std::string& experiment, const std::string& part,
                          const std::string& stem) const;
  std::filesystem::path Directory(const std::string& trial_id) const { return trials() / trial_id; }

  // Makes the trial exist: fsyncs its files, then writes trial.json durably. A call that throws
  // leaves a directory that counts as absent.
  void Finish(const StoreLock&, const nlohmann::json& trial) const;

  // Removes directories without trial.json and returns how many there were.
  std::size_t RemoveUnfinished(const StoreLock&) const;

  // Every finished trial, in order of start. One that cannot be read is named in `problems` and
  // left out; those of an older schema are counted there.
  std::vector<nlohmann::json> ReadTrials(std::vector<std::string>& problems) const;
  std::vector<nlohmann::json> ReadAnnotations(std::vector<std::string>& problems) const;

  // Calls a trial bad. Throws Error{kConfig} if there is no such trial.
  nlohmann::json Annotate(const StoreLock&, const std::string& trial_id,
                          const std::string& reason) const;

  // Adds to the index what the directories have and it has not, say after a kill between the two.
  // Returns the index; what cannot be read is named in `problems`.
  Index OpenIndex(const StoreLock&, std::vector<std::string>& problems) const;
  // Makes the index again, to the same rows. Computes the hashes of each trial again; one that they
  // contradict is named in `problems` and left out.
  void RebuildIndex(const StoreLock&, std::vector<std::string>& problems) const;
  // The rows of the index; empty where there is none yet.
  std::vector<TrialRow> ReadRows() const;

 private:
  std::filesystem::path results_;
  ProfileFolders profiles_;
};

}  // namespace sparfuse::harness
