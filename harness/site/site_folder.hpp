// Replaces a folder of pages by a newer one, and never anything else.
#pragma once

#include <filesystem>

namespace sparfuse::harness {

// Builds a site in a temporary folder next to `out`, and moves it to `out` when it is complete. At
// `out` there may be nothing, an empty folder, or an earlier site without other files.
class SiteFolder {
 public:
  // Throws Error{kConfig} naming the file or folder in the way, Error{kData} if no folder can be
  // made.
  explicit SiteFolder(const std::filesystem::path& out);
  SiteFolder(const SiteFolder&) = delete;
  SiteFolder& operator=(const SiteFolder&) = delete;
  ~SiteFolder();  // removes an incomplete site

  const std::filesystem::path& unfinished() const noexcept { return unfinished_; }

  // Lists the files in `unfinished` and moves it to the place of `out`, in one step if the file
  // system can exchange two folders. Returns the number of files. Throws as above, also if somebody
  // has written into `out` since.
  std::size_t Replace();

 private:
  void CheckPlace() const;

  std::filesystem::path out_, unfinished_;
};

}  // namespace sparfuse::harness
