// Takes unfinished trials out of the way. Files that it does not recognise as the harness's own
// stay where they are.
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

  // Moves the directory of an unfinished trial into the trash, from another disk too, and returns
  // where it is now: the trash's folder of today, and its place there. Nothing where `directory`
  // is not recognised: it is a link, has a trial.json, or has no config.json whose trial_id is
  // `place`. One that a kill left without config.json counts as one if nothing else is in it and
  // it is called like a trial; it is deleted if it is empty, and "" returned.
  std::optional<std::filesystem::path> Take(const std::filesystem::path& directory,
                                            const std::string& place) const;

  // Deletes what was put into the trash longer ago than `age`, no link followed. Returns what it
  // deleted.
  std::vector<std::filesystem::path> Empty(std::chrono::hours age) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace sparfuse::harness
