// Takes links that other programs measured into a declared cluster: `sparfuse cluster import`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/cluster/cluster.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

std::vector<LinkLog> ReadLogs(const ClusterImport& asked, const fs::path& file) {
  if (asked.from == "fingerprint") return ReadFingerprintLogs(file.string());
  AskedOfLog open{asked.ranks, asked.nodes, {}};
  for (std::size_t o = 0; o < std::size(kLinkOperationNames); ++o) {
    if (asked.operation == kLinkOperationNames[o]) open.operation = static_cast<LinkOperation>(o);
  }
  const std::string text = ReadFile(file);
  return {asked.from == "osu" ? ReadOsu(text, file.string(), open)
                              : ReadNcclTests(text, file.string(), open)};
}

// The file that may be written: one of the project's, where results lie elsewhere, is everybody's.
fs::path OwnFileOf(const ProfileFolders& profiles, const std::string& name) {
  const std::vector<std::string> known = profiles.Names(".toml");
  if (std::ranges::find(known, name) == known.end()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("unknown declared cluster \"{}\"{}; sparfuse cluster new makes one",
                               name, Suggestion(name, known)));
  }
  return profiles.File(name + ".toml");
}

// The text of the file with the curves, read as a cluster before it may be written.
std::string WithCurves(const ProfileFolders& profiles, const fs::path& file,
                       const ImportedLinks& links) {
  const std::string text = WithBlocks(ReadFile(file), file.string(), links.curves);
  const TomlFile toml = TomlFile::Parse(text, file.string());
  const DeclaredCluster cluster = ParseDeclaredCluster(toml, profiles);
  for (const LinkLog* log : links.curves) {
    const auto there = std::ranges::find(cluster.curves, log->ranks, &OperationCurve::ranks);
    if (there->source == log->Source() &&
        std::ranges::count(cluster.curves, log->ranks, &OperationCurve::ranks) == 1) {
      continue;
    }
    toml.Fail(fmt::format("/curve/{}", there - cluster.curves.begin()),
              fmt::format("a [[curve]] of {} ranks that no import wrote: expected it gone, or "
                          "--print, which changes nothing",
                          log->ranks));
  }
  return text;
}

Table RateTable(const ImportedLinks& links) {
  Table table;
  table.title = "Rates against what the file declares";
  table.columns = {"log", "of", "largest", "delivered", "nominal", "share", "declared"};
  for (const DeliveredRate& rate : links.rates) {
    table.rows.push_back({rate.log->file, rate.log->program, fmt::format("{:.0f} B", rate.bytes),
                          fmt::format("{:.4g} Gbit/s", rate.delivered),
                          fmt::format("{:g}: {}", rate.nominal, rate.label),
                          fmt::format("{:.3g}", rate.delivered / rate.nominal),
                          fmt::format("{:.4g} Gbit/s", rate.declared)});
    if (!rate.conflict.empty()) table.notes.push_back(rate.conflict);
  }
  table.notes.insert(table.notes.end(), links.notes.begin(), links.notes.end());
  return table;
}

}  // namespace

int ClusterImportVerb(Program& program, const ClusterImport& asked) {
  const ProfileFolders& profiles = program.store().profiles();
  const fs::path file = OwnFileOf(profiles, asked.cluster);
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles, asked.cluster);
  std::vector<LinkLog> logs;
  for (const std::string& file_of_logs : asked.logs) {
    for (LinkLog& log : ReadLogs(asked, file_of_logs)) logs.push_back(std::move(log));
  }
  const ImportedLinks links = LinksOf(cluster, logs);
  const bool writes = !asked.print && !links.curves.empty();
  if (writes) {
    if (file.parent_path() != profiles.own()) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{} is the project's, not of {}: expected a copy there under "
                                 "another name, or --print, which changes nothing",
                                 file.string(), profiles.own().string()));
    }
    WriteFileDurably(file, WithCurves(profiles, file, links));
  }
  fmt::print("{}\n", Render(RateTable(links), TableFormat::kMarkdown));
  for (const LinkLog* log : links.curves) {
    if (writes) {
      fmt::print("wrote the all-reduces of {} ranks into {}: {} sizes\n", log->ranks, file.string(),
                 log->samples.size());
    } else {
      fmt::print("{}", BlockOf(*log));
    }
  }
  if (!links.inputs.empty()) {
    fmt::print("\nFor [input] of {}, in the place of its own lines of these names:\n\n",
               file.string());
    for (const DeclaredInput& input : links.inputs) fmt::print("{}\n", LineOf(input));
  }
  if (links.curves.empty() && links.inputs.empty())
    fmt::print("nothing of these logs can stand in {}\n", file.string());
  return kDone;
}

}  // namespace sparfuse::harness
