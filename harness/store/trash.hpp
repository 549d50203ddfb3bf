// Moves unfinished trials to the trash. Files that it does not recognise as the harness's own stay.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sparfuse::harness {

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

}  // namespace sparfuse::harness
