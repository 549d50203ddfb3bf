// Makes, fills and lists declared clusters: `sparfuse cluster`.
#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/list/list.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/traces/nccl_logs.hpp"
#include "harness/traces/trace_model.hpp"

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
      "  1. sparfuse calibrate {}: its inputs, and how sure each is\n"
      "  2. cluster = \"{}\", mode = \"modelled\" in an experiment file: up to {} workers, {} a "
      "node; ratios\n"
      "     show the band that the ranges of its inputs make\n"
      "  3. the head of the file lists measurements, and the line that each replaces\n",
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

std::vector<LinkLog> ReadLog(const ClusterImport& asked, const fs::path& file) {
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

// Reads NCCL's records of collectives in training, as logs of their least times.
std::vector<LinkLog> ReadInspector(const std::vector<std::string>& files) {
  Inspected inspected = ReadNcclInspector(files);
  Table table;
  table.title = "Collectives in training";
  table.columns = {"collective", "ranks", "bytes", "least", "median", "waiting and sharing", "n"};
  table.alignment = "lrrrrrr";
  table.notes = inspected.notes;
  std::vector<LinkLog> logs;
  for (InspectedCollective& each : inspected.collectives) {
    for (const InspectedSize& size : each.sizes) {
      table.rows.push_back({kLinkOperationNames[static_cast<std::size_t>(each.log.operation)],
                            fmt::format("{}", each.log.ranks), fmt::format("{:.0f}", size.bytes),
                            fmt::format("{:g} us", size.least_us),
                            fmt::format("{:g} us", size.median_us),
                            fmt::format("{:.2f}x", size.load()), fmt::format("{}", size.n)});
    }
    logs.push_back(std::move(each.log));
  }
  fmt::print("{}\n", Render(table, TableFormat::kMarkdown));
  return logs;
}

std::vector<LinkLog> ReadLogs(const ClusterImport& asked, const DeclaredCluster& cluster) {
  if (asked.from == "nccl-inspector") return ReadInspector(asked.logs);
  std::vector<LinkLog> logs;
  if (asked.from == "trace") {
    std::vector<TraceFacts> ranks;
    for (const std::string& file : asked.logs) ranks.push_back(ReadTraceFacts(file, {}));
    logs = LinkLogsOf(ranks, cluster.ranks_per_node);
    if (logs.empty()) {
      SPARFUSE_THROW(kConfig,
                     fmt::format("{}: no exchange of two ranks or more: expected a trace of "
                                 "distributed training",
                                 asked.logs.front()));
    }
    return logs;
  }
  for (const std::string& file : asked.logs) {
    for (LinkLog& log : ReadLog(asked, file)) logs.push_back(std::move(log));
  }
  return logs;
}

// NCCL_DEBUG=INFO measures nothing. Prints its statements beside those of the cluster's file.
int PrintNcclInfo(const ClusterImport& asked, const DeclaredCluster& cluster,
                  const fs::path& cluster_file) {
  for (const std::string& file : asked.logs) {
    const NcclInfoOnCluster said = CompareNcclInfo(ReadNcclInfo(ReadFile(file), file), cluster);
    fmt::print("{}: nothing in it is measured. For {}:\n\n", file, cluster_file.string());
    for (const std::string& line : said.lines) fmt::print("{}\n", line);
    for (const std::string& note : said.notes) fmt::print("note: {}\n", note);
  }
  return kDone;
}

// The text of the file with the curves. It is parsed as a cluster before it may be written.
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
              fmt::format("a [[curve]] of {} ranks that no import wrote: expected none, or "
                          "--print, which changes nothing",
                          log->ranks));
  }
  return text;
}

Table RateTable(const ImportedLinks& links) {
  Table table;
  table.title = "Measured and declared rates";
  table.columns = {"log", "of", "largest", "delivered", "nominal", "share", "declared"};
  for (const DeliveredRate& rate : links.rates) {
    table.rows.push_back({Visible(rate.log->file), rate.log->program,
                          fmt::format("{:.0f} B", rate.bytes),
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
  const fs::path file = FileOfDeclared(profiles, asked.cluster);
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles, asked.cluster);
  if (asked.from == "nccl-info") return PrintNcclInfo(asked, cluster, file);
  const std::vector<LinkLog> logs = ReadLogs(asked, cluster);
  const ImportedLinks links = LinksOf(cluster, logs);
  const bool writes = !asked.print && !links.curves.empty();
  if (writes) {
    NeedOwn(profiles, file);
    WriteFileDurably(file, WithCurves(profiles, file, links));
  }
  if (links.rates.empty()) {  // the logs have latencies only
    for (const std::string& note : links.notes) fmt::print("note: {}\n", Visible(note));
  } else {
    fmt::print("{}\n", Render(RateTable(links), TableFormat::kMarkdown));
  }
  for (const LinkLog* log : links.curves) {
    if (writes) {
      fmt::print("wrote the all-reduces of {} ranks into {}: {} sizes\n", log->ranks, file.string(),
                 log->samples.size());
    } else {
      fmt::print("{}", BlockOf(*log));
    }
  }
  if (!links.inputs.empty()) {
    fmt::print("\nFor [input] of {}, instead of its own lines of these names:\n\n", file.string());
    for (const DeclaredInput& input : links.inputs) fmt::print("{}\n", LineOf(input));
  }
  if (links.curves.empty() && links.inputs.empty())
    fmt::print("these logs hold nothing that {} can state\n", file.string());
  return kDone;
}

}  // namespace sparfuse::harness
