#include "harness/run/live/ship/fetched_results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <map>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kContent = ":=", kSum = ":# ", kEnd = ":.";
constexpr std::size_t kDigits = 64;

// What a node said, line by line.
struct Said {
  std::map<std::string, std::string> sums;  // by "0/steps.npy"
  std::string content;                      // base64
  std::string others;                       // lines of others, the last of them
  bool ended = false;
};

Said Read(const fs::path& printed) {
  constexpr std::size_t kMostOthers = 500;
  Said said;
  std::ifstream in(printed, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const std::string_view text = line;
    if (text.starts_with(kContent)) {
      said.content += text.substr(kContent.size());
      said.content += '\n';
    } else if (text.starts_with(kSum) && text.size() > kSum.size() + kDigits + 2) {
      const std::string name(text.substr(kSum.size() + kDigits + 2));
      said.sums[name] = text.substr(kSum.size(), kDigits);
    } else if (text == kEnd) {
      said.ended = true;
    } else {
      said.others += line + "\n";
      if (said.others.size() > kMostOthers) said.others.erase(0, said.others.size() - kMostOthers);
    }
  }
  while (said.others.ends_with('\n')) said.others.pop_back();
  return said;
}

// Which of the trials a file is of, by its name there.
const fs::path* TrialOf(const std::string& name, const std::vector<fs::path>& trials) {
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const std::string folder = std::to_string(i) + "/";
    if (name.starts_with(folder) && name.find('/', folder.size()) == std::string::npos)
      return &trials[i];
  }
  return nullptr;
}

}  // namespace

std::string SendingResults(const std::string& place) {
  return fmt::format(
      R"sh(cd {} || exit 1
for f in */*; do
  [ "${{f##*/}}" = config.json ] || [ ! -f "$f" ] || sha256sum "$f" | sed 's/^/{} /'
done
tar -c --exclude=config.json . | base64 | sed 's/^/{}/'
echo '{}')sh",
      ShellQuoted(place), kSum.substr(0, kSum.size() - 1), kContent, kEnd);
}

std::string TakeResults(const fs::path& printed, const fs::path& between,
                        const std::vector<fs::path>& trials) {
  const Said said = Read(printed);
  fs::create_directories(between);
  const fs::path content = between / "content";
  WriteFileDurably(content, said.content);
  bool ok = false;
  const std::string unpacked = CommandOutput(
      fmt::format("cd {} && base64 --decode content | tar -x 2>&1", ShellQuoted(between.string())),
      ok);
  std::vector<std::string> missing;
  for (const auto& [name, sum] : said.sums) {
    const fs::path* trial = TrialOf(name, trials);
    if (trial == nullptr) continue;
    const fs::path file = between / name;
    if (!fs::is_regular_file(fs::symlink_status(file)) || Sha256Hex(ReadFile(file)) != sum) {
      missing.push_back(name);
      continue;
    }
    std::error_code failed;
    fs::copy_file(file, *trial / file.filename(), fs::copy_options::overwrite_existing, failed);
    if (failed) {
      SPARFUSE_THROW(kData, fmt::format("cannot write {}: {}", (*trial / file.filename()).string(),
                                        failed.message()));
    }
  }
  if (said.ended && missing.empty()) return "";
  std::string wrong = missing.empty() ? "it stopped in between"
                                      : fmt::format("{} did not come", fmt::join(missing, ", "));
  for (const std::string& words : {said.others, unpacked}) {
    if (!words.empty()) wrong += fmt::format("; \"{}\"", words);
  }
  return wrong;
}

}  // namespace sparfuse::harness
