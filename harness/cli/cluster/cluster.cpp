// Makes, fills and lists declared clusters: `sparfuse cluster`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/list/list.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

namespace fs = std::filesystem;
using nlohmann::json;

int ClusterNewVerb(Program& program, const NewCluster& wanted) {
  const ProfileFolders& profiles = program.store().profiles();
  const fs::path file = PlaceOfNewCluster(profiles, wanted.name);
  const std::string text = ClusterFromPreset(profiles, wanted);
  MakeDirectories(file.parent_path());
  WriteFileDurably(file, text);
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles, wanted.name);
  fmt::print(
      "wrote {}: {} nodes of {}, {} devices, none of it measured. Next:\n"
      "  1. sparfuse calibrate {}: what it states, and how sure that is\n"
      "  2. cluster = \"{}\", mode = \"modelled\" in an experiment file: up to {} workers, {} a "
      "node; ratios\n"
      "     show the band that the ranges leave\n"
      "  3. the head of the file says what to measure, and which line that replaces\n",
      file.string(), cluster.nodes, cluster.ranks_per_node, cluster.ranks(), wanted.name,
      wanted.name, cluster.ranks(), cluster.ranks_per_node);
  return kDone;
}

int ClusterListVerb(Program& program) {
  json all;
  std::string text;
  for (const char* what : {"presets", "stacks", "clusters"}) {
    all[what] = Listing(program, {what, false});
    text += fmt::format("{}{}:\n{}", text.empty() ? "" : "\n", what, ListText(what, all[what]));
  }
  if (program.json()) {
    PrintJson(all);
  } else {
    fmt::print("{}", text);
  }
  return kDone;
}

namespace {

std::vector<LinkLog> ReadLogs(const ClusterImport& asked, const fs::path& file) {
  if (asked.from == "fingerprint") return ReadFingerprintLogs(file.string());
  AskedOfLog open{asked.ranks, asked.nodes, {}};
  for (std::size_t o = 0; o < std::size(kLinkOperationNames); ++o) {
    if (asked.operation == kLinkOperationNames[o]) open.operation = static_cast<LinkOperation>(o);
  }
  const std::string text = ReadFile(file);
  LinkLog log = asked.from == "osu" ? ReadOsu(text, file.string(), open)
                                    : ReadNcclTests(text, file.string(), open);
  for (const std::string& note : log.notes)
    fmt::print(stderr, "note: {}: {}\n", file.string(), note);
  return {std::move(log)};
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
