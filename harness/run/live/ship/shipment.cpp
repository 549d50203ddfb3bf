#include "harness/run/live/ship/shipment.hpp"

#include <fmt/format.h>
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

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// Libraries of a host's own: of its kernel, its daemons (an orted, a PMIx server), its cards.
constexpr const char* kOfTheHost[] = {"ld-linux",      "libc.so",  "libm.so",    "libdl.so",
                                      "libpthread.so", "librt.so", "libutil",    "libresolv",
                                      "libmpi",        "libopen-", "libpmix",    "libevent",
                                      "libhwloc",      "libudev",  "libcuda.so", "libnvidia-"};

// Of the file's bytes, a piece at a time: libraries of LibTorch are big.
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

// A file that lies beneath `folder` by name only is somebody else's.
void NeedWithin(const fs::path& folder, const fs::path& file) {
  const fs::path real = fs::canonical(file);
  const fs::path relative = real.lexically_relative(fs::canonical(folder));
  if (!relative.empty() && *relative.begin() != "..") return;
  SPARFUSE_THROW(kData, fmt::format("cannot ship {}: a link leads out of {}, to {}; expected the "
                                    "file itself there",
                                    file.string(), folder.string(), real.string()));
}

// Open MPI's parts in an archive, as they lie beneath OPAL_PREFIX; nothing where that is none.
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
    if (!fs::exists(data / name)) continue;  // a trial that needs it says so itself
    NeedWithin(data, data / name);
    sources["data/" + name] = fs::absolute(data / name);
  }
  for (const auto& [name, source] : sources)
    shipment.files.push_back({source, name, HashOf(source)});
  return shipment;
}

}  // namespace sparfuse::harness
