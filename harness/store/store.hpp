// Keeps the results folder: trial directories that are finished or do not exist, annotations, the
// index.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/clusters/profile_folders.hpp"
#include "harness/store/index.hpp"
#include "harness/store/store_lock.hpp"
#include "harness/store/trash.hpp"

namespace sparfuse::harness {

// What a run found beneath the trials that is no finished trial.
struct SweptTrials {
  std::vector<std::string> unfinished;          // their ids: no longer among the trials
  std::vector<std::filesystem::path> in_trash;  // where those lie that had anything in them
  std::vector<std::filesystem::path> unknown;   // not the harness's: left where they are
};

// Where trials and annotations lie: reads need no lock, what writes takes one as a witness. Folders
// that links lead to are as good as folders.
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

  // Adds to what a finished trial says what came to light later: `more` is merged into its
  // trial.json (RFC 7386). A call that throws leaves it as it was.
  void Amend(const StoreLock&, const std::string& trial_id, const nlohmann::json& more) const;

  // Moves a trial that was begun and not finished to the trash.
  void Discard(const StoreLock&, const std::string& trial_id) const;
  // Moves all of them that an earlier run left, and empties the trash of what is older than a week.
  SweptTrials RemoveUnfinished(const StoreLock&) const;

  // One that cannot be read is named in `problems` and left out.
  std::vector<Annotation> ReadAnnotations(std::vector<std::string>& problems) const;

  // Calls a trial bad, and remembers in its private.json who does: no name leaves this machine.
  // Throws Error{kConfig} if there is no such trial.
  Annotation Annotate(const StoreLock&, const std::string& trial_id,
                      const std::string& reason) const;

  // Makes the index follow the directories: what is new or changed is read, what is gone removed.
  // Returns the index. A trial that cannot be read, or whose hashes its directory contradicts, is
  // named in `problems` and left out; those of an older schema are counted there.
  Index OpenIndex(const StoreLock&, std::vector<std::string>& problems) const;
  // Makes the index again, to the same rows.
  void RebuildIndex(const StoreLock&, std::vector<std::string>& problems) const;

  // What OpenIndex gives, by age. The index answers for the trials whose file is as it was when it
  // was read. Where it lacks any it is brought up to date, in moments; where that may not be, since
  // a run holds the store or nobody may write to it, what it lacks is read all the same.
  std::vector<TrialRow> Rows(std::vector<std::string>& problems) const;
  // The rows of the index as it is; empty where there is none yet.
  std::vector<TrialRow> ReadRows() const;

 private:
  void Follow(Index& index, std::vector<std::string>& problems) const;

  std::filesystem::path results_;
  ProfileFolders profiles_;
};

}  // namespace sparfuse::harness
