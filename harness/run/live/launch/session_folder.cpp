#include "harness/run/live/launch/session_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {

std::string Nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "sparfuse-session-";

// The folder for shared memory segments, if it is writable, else the one for temporary files.
fs::path Parent() {
  const fs::path memory = "/dev/shm";
  std::error_code none;
  return ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path(none);
}

// Whether the folder can only be a session's folder of this user.
bool IsSession(const fs::path& folder) {
  const std::string name = folder.filename().string();
  struct stat status {};
  return folder.is_absolute() && folder.lexically_normal() == folder && name.starts_with(kPrefix) &&
         ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

}  // namespace

SessionFolder::SessionFolder(const fs::path& record) : record_(record) {
  std::string path = (Parent() / fmt::format("{}XXXXXX", kPrefix)).string();
  if (::mkdtemp(path.data()) == nullptr) {
    SPARFUSE_THROW(kData, fmt::format("cannot make a folder in {}: {} (errno {})",
                                      Parent().string(), std::strerror(errno), errno));
  }
  folder_ = path;
  try {
    WriteFileDurably(record_, path + "\n");
  } catch (...) {
    ::rmdir(path.c_str());
    throw;
  }
}

std::vector<std::pair<std::string, std::string>> SessionFolder::Environment() const {
  const std::string path = folder_.string();
  std::vector<std::pair<std::string, std::string>> environment;
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_btl_vader_backing_directory",
                           "PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory"}) {
    // A variable that the user set stays.
    if (std::getenv(name) == nullptr) environment.emplace_back(name, path);
  }
  return environment;
}

void SessionFolder::Remove() const {
  std::error_code none;
  fs::remove_all(folder_, none);
  fs::remove(record_, none);
}

void RemoveSession(const fs::path& record) {
  std::error_code none;
  if (!fs::is_regular_file(fs::symlink_status(record, none))) return;
  std::string path;
  try {
    path = ReadFile(record);
  } catch (const Error&) {
    return;
  }
  while (path.ends_with('\n')) path.pop_back();
  if (IsSession(path)) fs::remove_all(path, none);
  fs::remove(record, none);
}

}  // namespace sparfuse::harness
