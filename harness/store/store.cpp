#include "harness/store/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "harness/catalog/cell_config.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path LockPath(const fs::path& results) { return results / "store.lock"; }

int OpenLock(const fs::path& results) {
  MakeDirectories(results);
  const int fd = ::open(LockPath(results).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    SPARFUSE_THROW(kData, fmt::format("cannot open {}: {} (errno {})", LockPath(results).string(),
                                      std::strerror(errno), errno));
  }
  return fd;
}

// The pid is for people; that it cannot be written (a full disk) does not weaken the lock.
void WritePid(int fd) {
  const std::string text = std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) == 0) [[maybe_unused]]
    const auto written = ::pwrite(fd, text.data(), text.size(), 0);
}

std::string ReadPid(int fd) {
  char text[32] = {};
  const ssize_t n = ::pread(fd, text, sizeof(text) - 1, 0);
  std::string pid(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

std::string CommandOf(const std::string& pid) {
  try {
    std::string command = ReadFile("/proc/" + pid + "/cmdline");
    std::replace(command.begin(), command.end(), '\0', ' ');
    while (!command.empty() && command.back() == ' ') command.pop_back();
    return command;
  } catch (const Error&) {
    return "";  // it ended meanwhile
  }
}

// Whether `directory` is or contains a finished trial; removes what does not.
bool Sweep(const fs::path& directory, std::size_t& removed) {
  bool kept = fs::exists(directory / "trial.json");
  if (kept) return true;
  bool has_files = false;
  std::vector<fs::path> children;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.is_directory()) {
      children.push_back(entry.path());
    } else {
      has_files = true;
    }
  }
  for (const auto& child : children) kept = Sweep(child, removed) || kept;
  if (kept) return true;
  fs::remove_all(directory);
  if (has_files || children.empty()) ++removed;
  return false;
}

// An answer of a check of ReadAll: the value is left out, and the caller says so.
constexpr const char* kNotCounted = "not counted";

template <class Check>
std::vector<json> ReadAll(const std::vector<fs::path>& files, std::vector<std::string>& problems,
                          Check what_is_wrong) {
  std::vector<json> values;
  for (const auto& file : files) {
    try {
      json value = ReadJsonFile(file);
      const std::string wrong = what_is_wrong(value, file);
      if (wrong.empty()) {
        values.push_back(std::move(value));
      } else if (wrong != kNotCounted) {
        problems.push_back(fmt::format("{}: {}; left out", file.string(), wrong));
      }
    } catch (const Error& error) {
      problems.push_back(fmt::format("{}; left out", error.what()));
    }
  }
  return values;
}

// Computes the hashes of a trial again: of the configuration that it was started with and of its
// system. "" or the hash that trial.json contradicts.
std::string WhatHashesContradict(const fs::path& directory, const json& trial) {
  const auto contradicts = [&](const char* key, const std::string& what, const std::string& hash) {
    return trial[key] == hash
               ? ""
               : fmt::format("{}: trial.json has {:.12}, and the hash of {} is {:.12}", key,
                             trial[key].get<std::string>(), what, hash);
  };
  std::string wrong;
  if (const fs::path file = directory / "config.json"; fs::exists(file)) {
    try {
      wrong = contradicts("config_hash", "config.json", ConfigHash(ReadJsonFile(file)));
    } catch (const Error& error) {
      wrong = error.what();
    }
  }
  if (wrong.empty() && trial.contains("system"))
    wrong = contradicts("system_hash", "its system", ContentHash(trial["system"]));
  return wrong;
}

}  // namespace

StoreLock::StoreLock(const fs::path& results) : fd_(OpenLock(results)) {
  // The supervisor of a killed controller holds the lock until it has ended the trial's processes;
  // that takes moments and is waited for.
  for (int waited = 0; ::flock(fd_, LOCK_EX | LOCK_NB) != 0; ++waited) {
    if (waited < 100 && !fs::exists("/proc/" + ReadPid(fd_))) {
      ::usleep(100'000);
      continue;
    }
    const std::string pid = ReadPid(fd_);
    const std::string command = CommandOf(pid);
    ::close(fd_);
    SPARFUSE_THROW(
        kConfig, fmt::format("{} is in use by process {}{}: expected no other run on this results "
                             "folder; wait for it, or give another folder with --results",
                             results.string(), pid, command.empty() ? "" : " (" + command + ")"));
  }
  WritePid(fd_);
}

std::unique_ptr<StoreLock> StoreLock::TryLock(const fs::path& results) {
  const int fd = OpenLock(results);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd);
    return nullptr;
  }
  WritePid(fd);
  return std::unique_ptr<StoreLock>(new StoreLock(fd));
}

StoreLock::~StoreLock() { ::close(fd_); }

std::string Store::CreateTrial(const StoreLock&, const std::string& experiment,
                               const std::string& part, const std::string& stem) const {
  const fs::path parent = trials() / experiment / part;
  MakeDirectories(parent);
  for (int number = 1;; ++number) {
    const std::string name = fmt::format("{}-{}", stem, number);
    std::error_code error;
    if (fs::create_directory(parent / name, error)) {
      return fmt::format("{}/{}/{}", experiment, part, name);
    }
    if (error) {
      SPARFUSE_THROW(kData, fmt::format("cannot make the directory {}: {} (errno {})",
                                        (parent / name).string(), error.message(), error.value()));
    }
  }
}

void Store::Finish(const StoreLock&, const json& trial) const {
  if (const std::string wrong = WhatIsWrongWithTrial(trial); !wrong.empty()) {
    SPARFUSE_THROW(kInternal, "a trial that no reader would accept: " + wrong);
  }
  const fs::path directory = Directory(trial["trial_id"]);
  SyncDirectory(directory);
  WriteFileDurably(directory / "trial.json",
                   trial.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

std::size_t Store::RemoveUnfinished(const StoreLock&) const {
  std::size_t removed = 0;
  if (!fs::exists(trials())) return removed;
  for (const auto& entry : fs::directory_iterator(trials())) {
    if (entry.is_directory()) Sweep(entry.path(), removed);
  }
  return removed;
}

std::vector<json> Store::ReadTrials(std::vector<std::string>& problems) const {
  std::vector<fs::path> files;
  if (fs::exists(trials())) {
    for (const auto& entry : fs::recursive_directory_iterator(trials())) {
      if (entry.path().filename() == "trial.json") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::size_t older = 0;
  auto found =
      ReadAll(files, problems, [&](const json& trial, const fs::path& file) -> std::string {
        if (IsOlderTrial(trial)) {
          ++older;
          return kNotCounted;
        }
        if (const std::string wrong = WhatIsWrongWithTrial(trial); !wrong.empty()) return wrong;
        const std::string place = fs::relative(file.parent_path(), trials()).string();
        return trial["trial_id"] == place
                   ? ""
                   : fmt::format("trial_id: expected \"{}\", its place", place);
      });
  if (older > 0) {
    problems.push_back(
        fmt::format("{}: {} trial(s) were written by an older sparfuse and do not count: `sparfuse "
                    "run` runs them again; delete the old ones to be rid of this line",
                    trials().string(), older));
  }
  std::stable_sort(found.begin(), found.end(), [](const json& a, const json& b) {
    return a["started_utc"].get_ref<const std::string&>() <
           b["started_utc"].get_ref<const std::string&>();
  });
  return found;
}

std::vector<json> Store::ReadAnnotations(std::vector<std::string>& problems) const {
  std::vector<fs::path> files;
  if (fs::exists(results_ / "annotations")) {
    for (const auto& entry : fs::directory_iterator(results_ / "annotations")) {
      if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return ReadAll(files, problems, [](const json& annotation, const fs::path& file) -> std::string {
    for (const char* key : {"annotation_id", "trial_id", "reason", "created_utc"}) {
      if (!annotation.is_object() || !annotation.contains(key) || !annotation[key].is_string()) {
        return fmt::format("{}: expected a string", key);
      }
    }
    return annotation["annotation_id"] == file.stem().string()
               ? ""
               : "annotation_id: expected the file's name";
  });
}

json Store::Annotate(const StoreLock& lock, const std::string& trial_id,
                     const std::string& reason) const {
  if (reason.empty()) SPARFUSE_THROW(kConfig, "annotate: expected a reason that is not empty");
  if (trial_id.find("..") != std::string::npos || !fs::exists(Directory(trial_id) / "trial.json")) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("no trial \"{}\" in {}: expected an id that `sparfuse status` "
                               "prints",
                               trial_id, results_.string()));
  }
  const std::string now = UtcNow();
  const std::string id = now + "-" + Sha256Hex(trial_id + "\n" + reason + "\n" + now).substr(0, 8);
  const json annotation = {
      {"annotation_id", id}, {"trial_id", trial_id}, {"reason", reason}, {"created_utc", now}};
  MakeDirectories(results_ / "annotations");
  WriteFileDurably(results_ / "annotations" / (id + ".json"), annotation.dump(1) + "\n");
  std::vector<std::string> problems;
  OpenIndex(lock, problems);
  return annotation;
}

Index Store::OpenIndex(const StoreLock& lock, std::vector<std::string>& problems) const {
  if (!Index::IsCurrent(index_path())) {
    RebuildIndex(lock, problems);
    return Index::OpenToWrite(index_path());
  }
  Index index = Index::OpenToWrite(index_path());
  const auto trial_ids = index.TrialIds();
  for (const auto& trial : ReadTrials(problems)) {
    if (!trial_ids.contains(trial["trial_id"].get<std::string>())) index.AddTrial(trial);
  }
  const auto annotation_ids = index.AnnotationIds();
  for (const auto& annotation : ReadAnnotations(problems)) {
    if (!annotation_ids.contains(annotation["annotation_id"].get<std::string>())) {
      index.AddAnnotation(annotation);
    }
  }
  return index;
}

void Store::RebuildIndex(const StoreLock&, std::vector<std::string>& problems) const {
  const fs::path fresh = results_ / "index.sqlite.new";
  for (const char* suffix : {"", "-journal"}) fs::remove(fresh.string() + suffix);
  {
    Index index = Index::OpenToWrite(fresh);
    for (const auto& trial : ReadTrials(problems)) {
      const fs::path directory = Directory(trial["trial_id"]);
      if (const std::string wrong = WhatHashesContradict(directory, trial); wrong.empty()) {
        index.AddTrial(trial);
      } else {
        problems.push_back(fmt::format("{}: {}; left out", directory.string(), wrong));
      }
    }
    for (const auto& annotation : ReadAnnotations(problems)) index.AddAnnotation(annotation);
  }
  fs::remove(index_path().string() + "-journal");  // of the file that is replaced
  fs::rename(fresh, index_path());
  SyncDirectory(results_);
}

std::vector<TrialRow> Store::ReadRows() const {
  if (!fs::exists(index_path())) return {};
  return Index::OpenToRead(index_path()).Rows();
}

}  // namespace sparfuse::harness
