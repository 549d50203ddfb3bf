#include "harness/site/site_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// Lists the files of a site, except itself, one in each line after the first.
constexpr const char* kList = ".sparfuse-site";
constexpr const char* kFirstLine = "The files of a site that `sparfuse site` wrote, and replaces:";

// All files in `folder`, relative to it.
std::set<std::string> FilesIn(const fs::path& folder) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink() || !entry.is_directory())
      files.insert(entry.path().lexically_relative(folder).generic_string());
  }
  return files;
}

std::set<std::string> FilesOfSite(const fs::path& folder) {
  if (!fs::is_regular_file(fs::symlink_status(folder / kList))) return {};
  std::istringstream lines(ReadFile(folder / kList));
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return {};
  std::set<std::string> files = {kList};
  while (std::getline(lines, line)) files.insert(line);
  return files;
}

void Rename(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) FailAt("put a site at", to, errno);
}

}  // namespace

SiteFolder::SiteFolder(const fs::path& out) : out_(fs::weakly_canonical(fs::absolute(out))) {
  if (!out_.has_filename()) out_ = out_.parent_path();  // "site/"
  CheckPlace();
  MakeDirectories(out_.parent_path());
  unfinished_ = out_.parent_path() /
                fmt::format(".{}.sparfuse-unfinished-{}", out_.filename().string(), ::getpid());
  fs::remove_all(unfinished_);  // left by a killed process of this number
  MakeDirectories(unfinished_);
}

SiteFolder::~SiteFolder() {
  std::error_code none;
  fs::remove_all(unfinished_, none);
}

void SiteFolder::CheckPlace() const {
  if (!SomethingIsAt(out_)) return;
  if (!fs::is_directory(out_))
    SPARFUSE_THROW(kConfig, out_.string() + " is not a folder: expected a folder for the site");
  const std::set<std::string> known = FilesOfSite(out_);
  for (const std::string& file : FilesIn(out_)) {
    if (known.contains(file)) continue;
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} has {}, which no `sparfuse site` wrote: expected a new folder, "
                               "an empty one, or one with only an earlier site",
                               out_.string(), file));
  }
}

std::size_t SiteFolder::Replace() {
  const std::set<std::string> files = FilesIn(unfinished_);
  std::string list = std::string(kFirstLine) + "\n";
  for (const std::string& file : files) list += file + "\n";
  WriteFileDurably(unfinished_ / kList, list);
  CheckPlace();
  if (!SomethingIsAt(out_)) {
    Rename(unfinished_, out_);
  } else if (::renameat2(AT_FDCWD, unfinished_.c_str(), AT_FDCWD, out_.c_str(), RENAME_EXCHANGE) !=
             0) {
    if (errno != EINVAL && errno != ENOSYS) FailAt("put a site at", out_, errno);
    const fs::path earlier = unfinished_.string() + "-earlier";  // this file system has no exchange
    Rename(out_, earlier);
    Rename(unfinished_, out_);
    fs::remove_all(earlier);
  }
  return files.size();
}

}  // namespace sparfuse::harness
