// Replaces a folder of pages by a newer one, and never anything else.
#pragma once

#include <filesystem>

namespace sparfuse::harness {

// A folder beside `out` that takes its place when it is whole. What stands at `out` must be
// nothing, an empty folder, or an earlier site without files of anybody else.
class SiteFolder {
 public:
  // Throws Error{kConfig} naming what is in the way, Error{kData} where no folder can be made.
  explicit SiteFolder(const std::filesystem::path& out);
  SiteFolder(const SiteFolder&) = delete;
  SiteFolder& operator=(const SiteFolder&) = delete;
  ~SiteFolder();  // removes what did not take its place

  const std::filesystem::path& unfinished() const noexcept { return unfinished_; }

  // Lists the files in `unfinished` and puts it in the place of `out`: in one step where the file
  // system can exchange two folders. Returns how many files there are. Throws as above, also where
  // somebody has written into `out` since.
  std::size_t Replace();

 private:
  void CheckPlace() const;

  std::filesystem::path out_, unfinished_;
};

}  // namespace sparfuse::harness
