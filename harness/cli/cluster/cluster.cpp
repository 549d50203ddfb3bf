// Makes a declared cluster's file from a preset and lists what there is: `sparfuse cluster`.
#include "harness/cli/cluster/cluster.hpp"

#include <fmt/format.h>

#include "harness/cli/list/list.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/files/durable_file.hpp"

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

}  // namespace sparfuse::harness
