#include "harness/run/live/ship/shipping.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/launcher.hpp"

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
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(size), ""));
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
const fs::path* TrialOf(const fs::path& name, const std::vector<fs::path>& trials) {
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (name.parent_path() == std::to_string(i)) return &trials[i];
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

namespace {

using Kind = LaunchMethod::Kind;

constexpr double kMostSecondsOfCleaning = 10;
constexpr int kDaysOfLaunches = 3, kDaysOfFiles = 30;  // age of unused files that a store removes

std::string QuotedPath(const fs::path& path) { return ShellQuoted(path.string()); }

std::string Done() { return fmt::format(" && echo '{}'", kScriptDone); }

const std::atomic<bool> kNever{false};

// Whether a file has the content whose hash is its name.
constexpr const char* kIsWhole = R"sh([ "$(sha256sum <"$f" | cut -c 1-64)" = "${f##*/}" ])sh";

// Calls take(rest of the line) for each line that begins with `head`.
template <class Take>
void ForEachLine(const std::string& text, std::string_view head, const Take& take) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(head)) take(line.substr(head.size()));
  }
}

}  // namespace

Shipping::Shipping(const LaunchMethod& method, const Shipment& shipment,
                   const std::atomic<bool>& interrupted)
    : channel_(method, interrupted),
      to_the_end_(method, kNever),
      nodes_(NodesOf(method)),
      has_open_mpi_(shipment.has_open_mpi) {
  if (has_open_mpi_ && method.kind != Kind::kSrun) {
    SPARFUSE_THROW(
        kConfig,
        "--ship with the mpirun of an archive: its daemons are missing on hosts until the archive "
        "is sent; expected --launch srun, or the archive unpacked under the same path on every "
        "host");
  }
  std::vector<NodeStore> nodes = Look(shipment);
  ForEachNode(nodes, [&](NodeStore& node) { TakeFromTorch(shipment, node); });
  Transfer(shipment, nodes);
  Link(shipment);
}

Shipping::~Shipping() {
  try {
    ForEachNode(nodes_, [&](const std::string& node) {
      const std::string removing = RemovingFetched(node);
      if (!removing.empty())
        to_the_end_.Run(node, removing + "echo '" + kScriptDone + "'", "", kMostSecondsOfCleaning);
    });
  } catch (const std::exception&) {
    // Remaining files are removed when they are old.
  }
}

std::vector<NodeStore> Shipping::Look(const Shipment& shipment) {
  constexpr const char* kStore = "sparfuse: store ";
  constexpr const char* kHas = "sparfuse: has ";
  const std::string id = shipment.Id();
  const std::string script = fmt::format(
      R"sh(s=${{TMPDIR:-/tmp}}/sparfuse-$(id -u)
mkdir -m 700 "$s" 2>/dev/null
if [ -L "$s" ] || ! [ -d "$s" ] || ! [ -O "$s" ]; then
  echo "$s cannot be made, or is not a folder of this user's own"; exit 1
fi
chmod 700 "$s" && cd "$s" && mkdir -p files trials && [ -w files ] || exit 1
find trials -mindepth 1 -maxdepth 1 -mtime +{3} -exec rm -rf {{}} + 2>/dev/null
find . -mindepth 1 -maxdepth 1 -name 'in.*' -mtime +{3} -exec rm -rf {{}} + 2>/dev/null
find . -mindepth 1 -maxdepth 1 -type d ! -name files ! -name trials -mtime +{4} -exec rm -rf {{}} + 2>/dev/null
echo '{0}'"$s"
while read -r h; do
  f=files/$h
  [ -f "$f" ] || continue
  if [ -f {5}/complete ] || {6}; then touch "$f" && echo '{1}'"$h"; else rm -f "$f"; fi
done
find files -type f -mtime +{4} -exec rm -f {{}} + 2>/dev/null
echo '{2}')sh",
      kStore, kHas, kScriptDone, kDaysOfLaunches, kDaysOfFiles, id, kIsWhole);
  const Staging staging;
  const fs::path wanted = staging.folder() / "wanted";
  std::string hashes;
  for (const ShippedFile& file : shipment.files) hashes += file.hash + "\n";
  WriteFileDurably(wanted, hashes);
  std::vector<NodeStore> nodes(nodes_.size());
  std::vector<fs::path> stores(nodes_.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].node = nodes_[i];
  ForEachNode(nodes, [&](NodeStore& node) {
    // Reads files of gigabytes only once.
    const std::string said =
        channel_.Run(node.node, script, "cat " + QuotedPath(wanted), kMostSecondsOfFiles);
    ForEachLine(said, kStore, [&](const std::string& store) {
      stores[static_cast<std::size_t>(&node - nodes.data())] = store;
    });
    ForEachLine(said, kHas, [&](const std::string& hash) { node.has.insert(hash); });
  });
  store_ = stores.front();
  for (std::size_t i = 0; i < stores.size(); ++i) {
    if (stores[i] == store_) continue;
    SPARFUSE_THROW(kConfig, fmt::format("--ship: node {}: TMPDIR makes its folder {}, and {} on "
                                        "another node: expected the same on all",
                                        nodes_[i], stores[i].string(), store_.string()));
  }
  folder_ = store_ / id;
  return nodes;
}

void Shipping::TakeFromTorch(const Shipment& shipment, NodeStore& node) const {
  constexpr const char* kHas = "sparfuse: has ";
  std::string wanted;
  for (const ShippedFile* file : shipment.OfTorch()) {
    if (!node.has.contains(file->hash))
      wanted += file->hash + " " + file->source.filename().string() + "\n";
  }
  if (wanted.empty()) return;
  const Staging staging;
  WriteFileDurably(staging.folder() / "wanted", wanted);
  const std::string said =
      channel_.Run(node.node,
                   fmt::format(R"sh(d=$(python3 -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])' 2>/dev/null)/lib
while read -r h n; do
[ -f "$d/$n" ] && [ "$(sha256sum <"$d/$n" | cut -c 1-64)" = "$h" ] && t=$(mktemp {0}/in.XXXXXX) &&
cp "$d/$n" "$t" && mv -f "$t" {0}/files/"$h" && echo '{1}'"$h"
done
echo '{2}')sh",
                               QuotedPath(store_), kHas, kScriptDone),
                   "cat " + QuotedPath(staging.folder() / "wanted"), kMostSecondsOfFiles);
  ForEachLine(said, kHas, [&](const std::string& hash) { node.has.insert(hash); });
}

std::string Shipping::Unpacking(const std::string& options) const {
  return fmt::format(
      R"sh(cd {} && t=$(mktemp -d in.XXXXXX) || exit 1
tar -x -m -C "$t" {} || {{ rm -rf "$t"; exit 1; }}
for f in "$t"/*; do
  {} || {{ echo "$f did not arrive as it was sent"; rm -rf "$t"; exit 1; }}
done
mv -f "$t"/* files && rmdir "$t")sh",
      QuotedPath(store_), options, kIsWhole);
}

bool Shipping::Broadcast(const fs::path& archive, std::vector<NodeStore>& nodes) const {
  const fs::path there = store_ / ("in." + archive.filename().string());
  const ShellResult sent =
      RunShell(fmt::format("sbcast --force {} {} 2>&1", QuotedPath(archive), QuotedPath(there)),
               kMostSecondsOfFiles, channel_.interrupted());
  if (!sent.ok) return false;
  ForEachNode(nodes, [&](const NodeStore& node) {
    channel_.Run(node.node,
                 Unpacking("-f " + QuotedPath(there)) + " && rm " + QuotedPath(there) + Done(), "",
                 kMostSecondsOfFiles);
  });
  return true;
}

void Shipping::Transfer(const Shipment& shipment, std::vector<NodeStore>& nodes) const {
  const Staging staging;
  std::set<std::string> everywhere, anywhere;  // lacked by all nodes; by some nodes
  for (const ShippedFile& file : shipment.files) {
    const auto has = std::ranges::count_if(
        nodes, [&](const NodeStore& node) { return node.has.contains(file.hash); });
    if (has == std::ssize(nodes) || !anywhere.insert(file.hash).second) continue;
    if (has == 0) everywhere.insert(file.hash);
    fs::create_symlink(file.source, staging.folder() / file.hash);
  }
  // names: the list in the staging folder that holds the names.
  const auto packing = [&](const std::set<std::string>& hashes, const std::string& list) {
    WriteFileDurably(staging.folder() / list, fmt::format("{}\n", fmt::join(hashes, "\n")));
    return fmt::format("tar -c -h -C {} -T {}", QuotedPath(staging.folder()),
                       QuotedPath(staging.folder() / list));
  };
  // Sent one by one, the nodes would take the same bytes through this host's link.
  if (channel_.method().kind == Kind::kSrun && nodes.size() > 1 && !everywhere.empty()) {
    const fs::path archive = staging.folder() / (Nonce() + ".tar");
    const ShellResult packed =
        RunShell(packing(everywhere, "all.list") + " -f " + QuotedPath(archive),
                 kMostSecondsOfFiles, channel_.interrupted());
    if (packed.ok && Broadcast(archive, nodes)) {
      for (NodeStore& node : nodes) node.has.insert(everywhere.begin(), everywhere.end());
    }
  }
  ForEachNode(nodes, [&](const NodeStore& node) {
    std::set<std::string> missing;
    std::ranges::set_difference(anywhere, node.has, std::inserter(missing, missing.end()));
    if (missing.empty()) return;
    channel_.Run(node.node, Unpacking("") + Done(), packing(missing, node.node + ".list"),
                 kMostSecondsOfFiles);
  });
}

void Shipping::Link(const Shipment& shipment) const {
  std::string links = fmt::format("set -e\ncd {}\n", QuotedPath(store_));
  for (const ShippedFile& file : shipment.files) {
    const fs::path at = folder_ / file.name;
    links += fmt::format("mkdir -p {} && ln -f files/{} {}\n", QuotedPath(at.parent_path()),
                         file.hash, QuotedPath(at));
  }
  links += fmt::format(
      "[ -x {0} ] || {{ echo {0} may not be run there: expected a TMPDIR without noexec; exit 1; "
      "}}\n"
      "touch {1} {1}/complete && echo '{2}'\n",
      QuotedPath(worker()), QuotedPath(folder_), kScriptDone);
  const Staging staging;
  const fs::path script = staging.folder() / "links";
  WriteFileDurably(script, links);
  ForEachNode(nodes_, [&](const std::string& node) {
    channel_.Run(node, "sh -s", "cat " + QuotedPath(script), kMostSecondsOfTrials);
  });
}

void Shipping::Use(std::vector<std::string> nodes) { nodes_ = std::move(nodes); }

Environment Shipping::environment() const {
  std::string libraries = (folder_ / "lib").string();
  if (const char* own = std::getenv("LD_LIBRARY_PATH")) libraries += std::string(":") + own;
  Environment environment = {{"LD_LIBRARY_PATH", libraries},
                             {"SPARFUSE_DATA", (folder_ / "data").string()}};
  if (!has_open_mpi_) return environment;
  // Sets them as scripts/bundled/machine.py does, to folders of this host.
  for (const auto& [name, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"OPAL_PREFIX", ""},
           {"OPAL_SYSCONFDIR", "etc"},
           {"PMIX_PKGLIBDIR", "lib/pmix"},
           {"PMIX_PKGDATADIR", "share/pmix"},
           {"HWLOC_PLUGINS_PATH", "lib/hwloc"}})
    environment.emplace_back(name, *part == '\0' ? folder_.string() : (folder_ / part).string());
  return environment;
}

std::string Shipping::RemovingFetched(const std::string& node) const {
  const std::scoped_lock lock(mutex_);
  std::string words;
  for (const std::string& nonce : std::exchange(fetched_[node], {}))
    words += "rm -rf " + QuotedPath(PlaceOf(nonce)) + "; ";
  return words;
}

void Shipping::Forget(const std::string& nonce) const {
  const std::scoped_lock lock(mutex_);
  for (const std::string& node : nodes_) fetched_[node].push_back(nonce);
}

std::vector<fs::path> Shipping::Send(const std::vector<fs::path>& trials,
                                     const std::string& nonce) const {
  const Staging staging;
  std::vector<fs::path> places;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const std::string name = std::to_string(i);
    fs::create_directories(staging.folder() / name);
    fs::copy_file(trials[i] / "config.json", staging.folder() / name / "config.json");
    if (const fs::path facts = trials[i] / kPrivateFile; fs::exists(facts))
      fs::copy_file(facts, staging.folder() / name / kPrivateFile);
    places.push_back(PlaceOf(nonce) / name);
  }
  const std::string place = QuotedPath(PlaceOf(nonce));
  ForEachNode(nodes_, [&](const std::string& node) {
    channel_.Run(node,
                 fmt::format("{}mkdir -p {} && tar -x -C {} && echo '{}'", RemovingFetched(node),
                             place, place, kScriptDone),
                 fmt::format("tar -c -C {} .", QuotedPath(staging.folder())), kMostSecondsOfTrials);
  });
  return places;
}

std::string Shipping::FetchFrom(const std::string& node, const std::vector<fs::path>& trials,
                                const std::string& nonce) const {
  const Staging staging;
  const fs::path output = staging.folder() / "output", said = staging.folder() / "said";
  const ShellResult sent =
      to_the_end_.RunInto(node, SendingResults(PlaceOf(nonce).string()), output, said);
  std::string wrong = TakeResults(output, staging.folder() / "results", trials);
  if (!sent.ended.empty()) wrong = sent.ended;
  if (wrong.empty()) {
    const std::scoped_lock lock(mutex_);
    fetched_[node].push_back(nonce);
    return "";
  }
  std::string told = ReadFile(said);
  while (told.ends_with('\n')) told.pop_back();
  return fmt::format("node {} did not give back all that its ranks wrote ({}): {}{}", node,
                     PlaceOf(nonce).string(), wrong,
                     told.empty() ? "" : fmt::format("; \"{}\"", told));
}

std::vector<std::string> Shipping::Fetch(const std::vector<fs::path>& trials,
                                         const std::string& nonce) const {
  std::vector<std::string> problems(nodes_.size());
  ForEachNode(nodes_, [&](const std::string& node) {
    std::string& problem = problems[static_cast<std::size_t>(&node - nodes_.data())];
    try {
      problem = FetchFrom(node, trials, nonce);
    } catch (const std::exception& error) {  // for instance, this machine's disk is full
      problem =
          fmt::format("the files of ranks on node {} did not arrive here: {}", node, error.what());
    }
  });
  std::erase(problems, "");
  return problems;
}

}  // namespace sparfuse::harness
