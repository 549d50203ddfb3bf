// Keeps the results folder: trial directories that are finished or do not exist, annotations, the
// index.
#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/clusters/profile_folders.hpp"
#include "harness/store/index.hpp"
#include "harness/store/store_lock.hpp"

namespace sparfuse::harness {

// The folders below the trials that a run found and that are not finished trials.
struct SweptTrials {
  std::vector<std::string> unfinished;          // their ids: no longer among the trials
  std::vector<std::filesystem::path> in_trash;  // the places of those with any content
  std::vector<std::filesystem::path> unknown;   // not the harness's: left in place
};

// Moves unfinished trials to the trash. Files that it does not recognise as the harness's own stay.
class Trash {
 public:
  explicit Trash(const std::filesystem::path& results) : folder_(results / "trash") {}

  const std::filesystem::path& folder() const noexcept { return folder_; }

  // Moves the directory of an unfinished trial into the trash, also from another disk, and returns
  // its new place: the trash's folder of today, and the place in it. Returns nothing if `directory`
  // is not such a directory: it is a link, has a trial.json, or has no config.json whose trial_id
  // is `place`. A directory that a kill left without config.json counts as one if it is empty and
  // has a trial's name; it is deleted, and "" returned.
  std::optional<std::filesystem::path> Take(const std::filesystem::path& directory,
                                            const std::string& place) const;

  // Deletes entries that came into the trash longer ago than `age`, without following links.
  // Returns their paths.
  std::vector<std::filesystem::path> Empty(std::chrono::hours age) const;

 private:
  std::filesystem::path folder_;
};

// The folder of trials and annotations. Reads need no lock; writes take one as a proof. Links to
// folders count as folders.
class Store {
 public:
  explicit Store(const std::filesystem::path& results) : Store(results, results / "profiles") {}
  Store(const std::filesystem::path& results, ProfileFolders profiles)
      : results_(results), profiles_(std::move(profiles)) {}

  const std::filesystem::path& results() const noexcept { return results_; }
  std::filesystem::path trials() const { return results_ / "trials"; }
  const ProfileFolders& profiles() const noexcept { return profiles_; }
  std::filesystem::path index_path() const { return results_ / "index.sqlite"; }
  Trash trash() const { return Trash(results_); }

  // Makes the directory of a new trial beneath trials(). `stem` is without the number that makes it
  // new. Returns the trial's id, its path relative to trials().
  std::string CreateTrial(const StoreLock&, const std::string& experiment, const std::string& part,
                          const std::string& stem) const;
  std::filesystem::path Directory(const std::string& trial_id) const { return trials() / trial_id; }

  // Makes the trial exist: fsyncs its files, then writes trial.json durably. A call that throws
  // leaves a directory that counts as absent.
  void Finish(const StoreLock&, const Trial& trial) const;
  // The same of a trial.json that came from elsewhere, and keeps its bytes.
  void Finish(const StoreLock&, const std::string& trial_id, const std::string& text) const;

  // Adds facts that became known later to a finished trial: `more` is merged into its trial.json
  // (RFC 7386). A call that throws leaves it unchanged.
  void Amend(const StoreLock&, const std::string& trial_id, const nlohmann::json& more) const;

  // Moves a trial that was begun and not finished to the trash.
  void Discard(const StoreLock&, const std::string& trial_id) const;
  // Moves all unfinished trials of earlier runs, and deletes from the trash what is older than a
  // week.
  SweptTrials RemoveUnfinished(const StoreLock&) const;

  // One that cannot be read is named in `problems` and left out.
  std::vector<Annotation> ReadAnnotations(std::vector<std::string>& problems) const;

  // Marks a trial as bad, and remembers the user in its private.json; no name leaves this machine.
  // Throws Error{kConfig} if there is no such trial.
  Annotation Annotate(const StoreLock&, const std::string& trial_id,
                      const std::string& reason) const;

  // Updates the index from the directories: reads new and changed trials, removes rows of missing
  // ones. Returns the index. A trial that cannot be read, or whose hashes contradict its directory,
  // is named in `problems` and left out; trials of an older schema are counted there.
  Index OpenIndex(const StoreLock&, std::vector<std::string>& problems) const;
  // Makes the index again, to the same rows.
  void RebuildIndex(const StoreLock&, std::vector<std::string>& problems) const;

  // The rows of OpenIndex, by age. The index has the trials whose file has not changed since it was
  // read. If it lacks any it is updated, which takes moments. If that is not possible, because a
  // run holds the store or this user may not write to it, the missing trials are read directly.
  std::vector<TrialRow> Rows(std::vector<std::string>& problems) const;
  // The rows of the index without an update; empty if there is none yet.
  std::vector<TrialRow> ReadRows() const;

 private:
  void Follow(Index& index, std::vector<std::string>& problems) const;

  std::filesystem::path results_;
  ProfileFolders profiles_;
};

}  // namespace sparfuse::harness
