#include "harness/run/live/ship/shipment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;

// Libraries that each host provides: of its kernel, its daemons (an orted, a PMIx server), its
// cards.
constexpr const char* kOfTheHost[] = {"ld-linux",      "libc.so",  "libm.so",    "libdl.so",
                                      "libpthread.so", "librt.so", "libutil",    "libresolv",
                                      "libmpi",        "libopen-", "libpmix",    "libevent",
                                      "libhwloc",      "libudev",  "libcuda.so", "libnvidia-"};

// Hashes a file piece by piece, because LibTorch's libraries are big.
std::string HashOf(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  std::vector<char> piece(1 << 20);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)
    EVP_DigestUpdate(context.get(), piece.data(), static_cast<std::size_t>(in.gcount()));
  if (!in.eof())
    SPARFUSE_THROW(kData, fmt::format("cannot ship: {} cannot be read", file.string()));
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

// Refuses a file that lies outside `folder`, to which only a link under `folder` leads.
void NeedWithin(const fs::path& folder, const fs::path& file) {
  const fs::path real = fs::canonical(file);
  const fs::path relative = real.lexically_relative(fs::canonical(folder));
  if (!relative.empty() && *relative.begin() != "..") return;
  SPARFUSE_THROW(kData, fmt::format("cannot ship {}: a link leads out of {}, to {}; expected the "
                                    "file itself there",
                                    file.string(), folder.string(), real.string()));
}

// Open MPI's files in an archive, with their paths under OPAL_PREFIX; empty if there is no archive.
std::vector<ShippedFile> OpenMpiOfArchive() {
  const char* prefix = std::getenv("OPAL_PREFIX");
  if (prefix == nullptr || !fs::exists(fs::path(prefix) / "archive.json")) return {};
  std::vector<ShippedFile> files;
  const fs::path root = prefix;
  for (const char* part : {"lib", "share/openmpi", "share/pmix", "etc"}) {
    std::error_code none;
    for (const auto& entry : fs::recursive_directory_iterator(root / part, none)) {
      if (!entry.is_regular_file(none)) continue;
      const fs::path name = entry.path().lexically_relative(root);
      files.push_back({entry.path(), name.string(), ""});
    }
  }
  return files;
}

}  // namespace

std::string Shipment::Id() const {
  nlohmann::json content = nlohmann::json::object();
  for (const ShippedFile& file : files) content[file.name] = file.hash;
  return ContentHash(content).substr(0, 12);
}

std::vector<const ShippedFile*> Shipment::OfTorch() const {
  const auto torch = std::ranges::find_if(
      files, [](const ShippedFile& file) { return file.name.starts_with("lib/libtorch"); });
  std::vector<const ShippedFile*> beside;
  for (const ShippedFile& file : files) {
    if (torch != files.end() && file.source.parent_path() == torch->source.parent_path())
      beside.push_back(&file);
  }
  return beside;
}

std::vector<std::string> DataFilesOf(const Catalog& catalog) {
  std::set<std::string> names;
  for (const workloads::WorkloadDescriptor& workload : catalog.workloads) {
    for (const workloads::DataFileSpec& file : workload.data_files) names.emplace(file.path);
  }
  return {names.begin(), names.end()};
}

std::vector<fs::path> ShippedLibraries(const std::string& ldd) {
  std::set<fs::path> libraries;
  std::istringstream lines(ldd);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("=> not found") != std::string::npos)
      SPARFUSE_THROW(kData, "cannot ship: a library of the worker is missing:" + line);
    const std::size_t begin = line.find("=> /");
    if (begin == std::string::npos) continue;
    const fs::path path = line.substr(begin + 3, line.rfind(" (") - begin - 3);
    const std::string name = path.filename().string();
    if (std::ranges::none_of(kOfTheHost, [&](const char* own) { return name.starts_with(own); }))
      libraries.insert(path);
  }
  return {libraries.begin(), libraries.end()};
}

Shipment Collect(const fs::path& worker, const fs::path& data,
                 const std::vector<std::string>& names) {
  Shipment shipment;
  std::map<std::string, fs::path> sources;  // by name in the shipment
  sources[kShippedWorker] = fs::absolute(worker);
  for (const ShippedFile& file : OpenMpiOfArchive()) {
    sources[file.name] = file.source;
    shipment.has_open_mpi = true;
  }
  bool ok = false;
  const std::string ldd = CommandOutput("ldd " + ShellQuoted(worker.string()) + " 2>&1", ok);
  for (const fs::path& library : ok ? ShippedLibraries(ldd) : std::vector<fs::path>())
    sources["lib/" + library.filename().string()] = library;
  for (const std::string& name : names) {
    if (!fs::exists(data / name)) continue;  // a trial that needs it reports that itself
    NeedWithin(data, data / name);
    sources["data/" + name] = fs::absolute(data / name);
  }
  for (const auto& [name, source] : sources)
    shipment.files.push_back({source, name, HashOf(source)});
  return shipment;
}

namespace {

constexpr std::string_view kContent = ":=", kSum = ":# ", kEnd = ":.";
constexpr std::size_t kDigits = 64;

// The lines of a node's answer.
struct Said {
  std::map<std::string, std::string> sums;  // by file, as in "0/steps.npy"
  std::string content;                      // base64
  std::string others;                       // the last lines of other programs
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

// The folder of the trial that a file belongs to, by the file's name in the shipment.
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
    // A host without rank 0 returns this file unchanged.
    if (file.filename() == kPrivateFile && ReadPrivateFacts(file.parent_path()).hosts.empty())
      continue;
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
