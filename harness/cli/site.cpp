// Writes web pages over all results of the store: `sparfuse site`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "harness/cli/drawing.hpp"
#include "harness/cli/list/list.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/site/site_data.hpp"
#include "harness/site/site_folder.hpp"
#include "harness/store/scrubber.hpp"
#include "harness/systems/system_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The readable files of results/systems, by name.
std::vector<DescribedSystem> DescribedSystems(const fs::path& folder) {
  std::vector<DescribedSystem> described;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".toml") continue;
    try {
      const TomlFile file = TomlFile::Read(entry.path());
      const SystemDescription checked(file);
      described.push_back({entry.path().stem().string(), file.root(), checked.nodes()});
    } catch (const Error& error) {
      fmt::print(stderr, "warning: {}; the site is without this description\n", error.what());
    }
  }
  std::ranges::sort(described, {}, &DescribedSystem::name);
  return described;
}

// The default method for ratios: dense, else the reference of most experiments in the store, else
// the first method.
std::string ReferenceOf(Program& program, const std::vector<SiteSystem>& systems,
                        const std::set<std::string>& methods) {
  const std::string usual = CompareRequest().reference;
  if (methods.contains(usual)) return usual;
  std::set<std::string> experiments;
  for (const SiteSystem& system : systems) {
    for (const TrialRow& row : system.side.rows) experiments.insert(row.experiment);
  }
  std::map<std::string, int> named;
  for (const std::string& id : experiments) {
    try {
      for (const Part& part : program.Load(id).parts) named[part.reference] += 1;
    } catch (const Error&) {  // its file is missing or elsewhere
    }
  }
  std::erase_if(named, [&](const auto& entry) { return !methods.contains(entry.first); });
  const auto most = std::ranges::max_element(named, {}, &std::pair<const std::string, int>::second);
  const std::string chosen = most != named.end() ? most->first : *methods.begin();
  fmt::print(stderr,
             "note: the store has no trial of {}: ratios are relative to {} (--reference METHOD)\n",
             usual, chosen);
  return chosen;
}

json Gather(Program& program, CompareRequest compare, const std::string& reference) {
  const fs::path results = program.store().results();
  std::vector<TrialRow> rows = program.Rows();
  MakeShareable(rows, results);
  const auto systems = SystemsOf(std::move(rows), DescribedSystems(program.systems()), results);
  if (systems.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{}: no results yet; `sparfuse run EXPERIMENT` or `sparfuse "
                               "merge FILE.sparfuse` comes first",
                               results.string()));
  }
  std::set<std::string> methods;
  for (const SiteSystem& system : systems) {
    for (const TrialRow& row : system.side.rows) methods.insert(row.method);
  }
  if (reference.empty()) {
    compare.reference = ReferenceOf(program, systems, methods);
  } else if (methods.contains(reference)) {
    compare.reference = reference;
  } else {
    SPARFUSE_THROW(kConfig, fmt::format("--reference {}: expected a method of the store: {}",
                                        reference, fmt::join(methods, ", ")));
  }
  const SiteCatalog catalog = {Listing(program, {"methods"}), Listing(program, {"workloads"})};
  return SiteData(systems, catalog, compare);
}

}  // namespace

int SiteVerb(Program& program, const SiteRequest& request) {
  if (request.out.empty() && !program.json())
    SPARFUSE_THROW(kConfig, "site: expected --out DIR, or --json for the numbers alone");
  std::optional<SiteFolder> folder;
  if (!request.out.empty()) folder.emplace(request.out);  // reports at once what is in the way
  CompareRequest compare = request.compare;
  compare.disturbed = program.disturbed();
  json data = Gather(program, compare, request.reference);
  if (request.dated) data["written_utc"] = UtcNow();
  if (program.json()) PrintJson(data);
  if (!folder) return kDone;
  const fs::path file = folder->unfinished() / "data.json";
  WriteFileDurably(file, data.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
  RenderFile(program, {"site", "--data", file.string(), "--out", folder->unfinished().string()},
             program.json());
  const std::size_t files = folder->Replace();
  if (!program.json()) {
    fmt::print("{}: {} system(s), {} method(s), {} workload(s), {} file(s)\n",
               (request.out / "index.html").string(), data["systems"].size(),
               data["methods"].size(), data["workloads"].size(), files);
  }
  return kDone;
}

}  // namespace sparfuse::harness
