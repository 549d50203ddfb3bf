#include "harness/store/trial_files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "harness/store/patience.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostLevels = 24;  // levels of folders; an experiment's id has fewer

FileStamp Stamp(const struct stat& status) {
  if (!S_ISREG(status.st_mode)) return {};
  return {status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec, status.st_size,
          static_cast<std::int64_t>(status.st_ino)};
}

// Whether an experiment, a part or a trial may have this name.
bool IsPlaceName(const std::string& name) {
  return name.front() != '.' && std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '@' || c == '+';
         });
}

// The walk of one listing. It opens folders by descriptors, because the paths of a hundred thousand
// trials would each be resolved from the root.
class Walk {
 public:
  explicit Walk(const fs::path& trials) : trials_(trials) {}

  TrialListing Run() {
    Enter("", 0);
    while (!links_.empty()) {  // links found behind a link wait for their turn
      std::vector<std::string> links = std::exchange(links_, {});
      std::ranges::sort(links);
      for (const std::string& link : links) EnterLink(link);
    }
    Sort();
    return std::move(listing_);
  }

 private:
  struct Folder {
    std::string place;
    bool link = false;
  };

  void EnterLink(const std::string& place) {
    const std::size_t level = static_cast<std::size_t>(std::ranges::count(place, '/'));
    const bool found = Enter(place, level + 1);
    if (!found) unknown_.push_back(place);
  }

  // Returns whether `place` contains a trial at any depth, or nothing at all.
  bool Enter(const std::string& place, std::size_t level) {
    const fs::path path = place.empty() ? trials_ : trials_ / place;
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
      if (errno != ENOENT || !place.empty()) Problem(path, std::strerror(errno));
      return true;
    }
    struct stat status {};
    if (::fstat(fd, &status) == 0 && !seen_.emplace(status.st_dev, status.st_ino).second) {
      ::close(fd);
      Problem(path, "a link to a folder that was looked into already");
      return true;
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(fd), ::closedir);
    if (!directory) {
      ::close(fd);
      return true;
    }
    return LookInto(directory.get(), place, level);
  }

  bool LookInto(DIR* directory, const std::string& place, std::size_t level) {
    std::vector<Folder> folders;
    bool has_config = false, has_files = false;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const unsigned char type = TypeOf(directory, *entry);
      if (type == DT_DIR || type == DT_LNK) {
        if (type == DT_LNK && !LeadsToFolder(directory, name)) {
          has_files = true;
        } else {
          folders.push_back({name, type == DT_LNK});
        }
      } else {
        has_config = has_config || name == "config.json";
        has_files = has_files || name != "config.json.tmp";
      }
    }
    patience_.Note(found_, "folders in " + trials_.string());
    const std::size_t finished_before = listing_.finished.size();
    bool any = folders.empty() && !has_files;
    std::vector<std::string> strange;
    for (const Folder& folder : folders) {
      const std::string child = place.empty() ? folder.place : place + "/" + folder.place;
      ++found_;
      if (AddIfFinished(directory, folder.place, child)) {
        any = true;
      } else if (level >= kMostLevels || !IsPlaceName(folder.place)) {
        strange.push_back(child);
      } else if (folder.link) {
        links_.push_back(child);  // the link reports by itself whether it led anywhere
        any = true;
      } else if (Enter(child, level + 1)) {
        any = true;
      } else {
        strange.push_back(child);
      }
    }
    const bool has_trials = listing_.finished.size() > finished_before;
    if (!place.empty() && !has_trials && (has_config || (folders.empty() && !has_files))) {
      listing_.unfinished.push_back(place);
      return true;
    }
    if (any || place.empty())
      unknown_.insert(unknown_.end(), strange.begin(),
                      strange.end());  // else `place` stands for it
    return any;
  }

  // Some file systems do not return the type with the entry, so stat finds it out.
  static unsigned char TypeOf(DIR* directory, const dirent& entry) {
    if (entry.d_type != DT_UNKNOWN) return entry.d_type;
    struct stat status {};
    if (::fstatat(::dirfd(directory), entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
      return DT_REG;
    return S_ISDIR(status.st_mode) ? DT_DIR : S_ISLNK(status.st_mode) ? DT_LNK : DT_REG;
  }

  static bool LeadsToFolder(DIR* directory, const std::string& name) {
    struct stat status {};
    return ::fstatat(::dirfd(directory), name.c_str(), &status, 0) == 0 && S_ISDIR(status.st_mode);
  }

  bool AddIfFinished(DIR* parent, const std::string& name, const std::string& place) {
    const std::string file = name + "/trial.json";
    struct stat status {};
    if (::fstatat(::dirfd(parent), file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
    // A link without its target, for instance on an unmounted disk, makes no trial unfinished.
    if (S_ISLNK(status.st_mode) && ::fstatat(::dirfd(parent), file.c_str(), &status, 0) != 0)
      status = {};
    listing_.finished.push_back({place, Stamp(status)});
    return true;
  }

  void Problem(const fs::path& path, const std::string& why) {
    listing_.problems.push_back(fmt::format("{}: {}; left out", path.string(), why));
  }

  void Sort() {
    listing_.unknown = std::move(unknown_);
    for (auto* places : {&listing_.unfinished, &listing_.unknown, &listing_.problems})
      std::ranges::sort(*places);
    std::ranges::sort(listing_.finished, {}, &TrialFile::place);
  }

  const fs::path trials_;
  TrialListing listing_;
  std::vector<std::string> links_, unknown_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::size_t found_ = 0;
  Patience patience_;
};

}  // namespace

FileStamp StampOf(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? Stamp(status) : FileStamp{};
}

TrialListing ListTrials(const fs::path& trials) { return Walk(trials).Run(); }

}  // namespace sparfuse::harness
