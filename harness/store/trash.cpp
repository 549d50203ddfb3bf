#include "harness/store/trash.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// A folder of the trash is named after the second of its creation: 20260131T123456Z.
std::string StampNow() {
  std::string stamp;
  for (const char c : UtcNow().substr(0, 19)) {
    if (c != '-' && c != ':') stamp += c;
  }
  return stamp + "Z";
}

// The time in a stamp; nothing if `name` is no stamp.
std::optional<std::time_t> TimeOf(const std::string& name) {
  std::tm utc{};
  const char* end = ::strptime(name.c_str(), "%Y%m%dT%H%M%SZ", &utc);
  const bool whole = end != nullptr && *end == '\0' && name.size() == 16;
  return whole ? std::optional(::timegm(&utc)) : std::nullopt;
}

bool IsFolder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(fs::symlink_status(path, none));  // a link to a folder does not count
}

// Whether a trial's directory may have this name: "...-b3-1".
bool IsTrialName(const std::string& name) {
  const auto digits_before = [&](std::size_t end) {
    std::size_t begin = end;
    while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1]))) --begin;
    return begin;
  };
  const std::size_t number = digits_before(name.size());
  if (number == name.size() || number < 1 || name[number - 1] != '-') return false;
  const std::size_t block = digits_before(number - 1);
  return block < number - 1 && block >= 2 && name[block - 1] == 'b' && name[block - 2] == '-';
}

enum class Is { kOurs, kEmpty, kUnknown };

Is Recognise(const fs::path& directory, const std::string& place) {
  if (!IsFolder(directory)) return Is::kUnknown;
  std::error_code error;
  if (fs::exists(fs::symlink_status(directory / "trial.json", error))) return Is::kUnknown;
  if (fs::exists(fs::symlink_status(directory / "config.json", error))) {
    try {
      const nlohmann::json config = ReadJsonFile(directory / "config.json");
      const bool ours =
          config.is_object() && config.contains("trial_id") && config["trial_id"] == place;
      return ours ? Is::kOurs : Is::kUnknown;
    } catch (const Error&) {
      return Is::kUnknown;  // our files are whole or missing, so it is another's
    }
  }
  if (!IsTrialName(directory.filename().string())) return Is::kUnknown;
  bool any = false;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().filename() != "config.json.tmp") return Is::kUnknown;
    any = true;
  }
  return error ? Is::kUnknown : any ? Is::kOurs : Is::kEmpty;
}

[[noreturn]] void Fail(const fs::path& from, const fs::path& to, const std::error_code& error) {
  SPARFUSE_THROW(
      kData, fmt::format("cannot move {} to {}: {}", from.string(), to.string(), error.message()));
}

}  // namespace

std::optional<fs::path> Trash::Take(const fs::path& directory, const std::string& place) const {
  const Is is = Recognise(directory, place);
  if (is == Is::kUnknown) return std::nullopt;
  if (is == Is::kEmpty) {
    ::rmdir(directory.c_str());  // fails if a file has appeared meanwhile
    return fs::path();
  }
  const std::string stamp = StampNow();
  fs::path to = folder_ / stamp / place;
  for (int number = 2; fs::exists(fs::symlink_status(to)); ++number)
    to = folder_ / stamp / (place + "." + std::to_string(number));
  MakeDirectories(to.parent_path());
  std::error_code error;
  fs::rename(directory, to, error);
  if (error == std::errc::cross_device_link) {  // the experiment's folder is a link
    error.clear();
    fs::copy(directory, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
    if (error) Fail(directory, to, error);
    fs::remove_all(directory, error);
  }
  if (error) Fail(directory, to, error);
  return to;
}

std::vector<fs::path> Trash::Empty(std::chrono::hours age) const {
  std::vector<fs::path> old;
  std::error_code none;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() - age);
  for (const auto& entry : fs::directory_iterator(folder_, none)) {
    const auto made = TimeOf(entry.path().filename().string());
    if (made && *made <= now && IsFolder(entry.path())) old.push_back(entry.path());
  }
  std::sort(old.begin(), old.end());
  for (const fs::path& folder : old) fs::remove_all(folder);
  return old;
}

}  // namespace sparfuse::harness
