#include "harness/run/live/ship/shipping.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <iterator>
#include <sstream>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/run/live/launch/session_folder.hpp"
#include "harness/run/live/ship/shipment.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
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
