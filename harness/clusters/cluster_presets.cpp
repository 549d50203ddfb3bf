#include "harness/clusters/cluster_presets.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// `text` with another value in the line of a key. The old text is replaced up to `end`.
std::string WithValue(std::string text, const std::string& key, char end,
                      const std::string& value) {
  std::size_t line = 0;
  while (line < text.size()) {
    const std::size_t after = text.find_first_not_of(' ', line + key.size());
    if (text.compare(line, key.size(), key) == 0 && after < text.size() && text[after] == '=') {
      const std::size_t from = text.find_first_not_of("= {", after);
      return text.replace(from, text.find(end, from) - from, value);
    }
    const std::size_t next = text.find('\n', line);
    if (next == std::string::npos) break;
    line = next + 1;
  }
  SPARFUSE_THROW(kInternal, "a preset has no line of " + key);
}

}  // namespace

std::string ClusterFromPreset(const ProfileFolders& profiles, const NewCluster& wanted) {
  const auto known = profiles.Names(".toml", kPresetsFolder);
  if (std::ranges::find(known, wanted.preset) == known.end()) {
    SPARFUSE_THROW(kConfig, fmt::format("unknown preset \"{}\"{} (sparfuse cluster list names all)",
                                        wanted.preset, Suggestion(wanted.preset, known)));
  }
  const fs::path file = profiles.File(fmt::format("{}/{}.toml", kPresetsFolder, wanted.preset));
  std::string text = ReadFile(file);
  const DeclaredCluster preset =
      ParseDeclaredCluster(TomlFile::Parse(text, file.string()), profiles);
  const int nodes = wanted.nodes > 0 ? wanted.nodes : preset.nodes;
  const int ranks = wanted.ranks_per_node > 0 ? wanted.ranks_per_node : preset.ranks_per_node;
  if (ranks > preset.ranks_per_node) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("--ranks-per-node {}: preset {} has {} cards a node; expected an "
                               "integer from 1 to {}",
                               ranks, wanted.preset, preset.ranks_per_node, preset.ranks_per_node));
  }
  text = WithValue(std::move(text), "nodes", '\n', std::to_string(nodes));
  text = WithValue(std::move(text), "ranks_per_node", '\n', std::to_string(ranks));
  const int cards = static_cast<int>(preset.Value("network_cards"));
  const int shared = (cards * ranks + preset.ranks_per_node - 1) / preset.ranks_per_node;
  if (shared != cards) {
    text = WithValue(std::move(text), "network_cards", 'k',  // the input's kind follows
                     fmt::format("value = {0}, low = {0}, high = {0}, ", shared));
  }
  // The preset names kinds of parts alone, so that no number of it is left.
  text = WithValue(
      std::move(text), "hardware", '\n',
      fmt::format("\"{} node{} of {} {}; {} network card{} a node\"", nodes, nodes == 1 ? "" : "s",
                  ranks, preset.hardware, shared, shared == 1 ? "" : "s"));
  text = fmt::format("# {}, made by `sparfuse cluster new {} --preset {}`.\n", wanted.name,
                     wanted.name, wanted.preset) +
         text;
  ParseDeclaredCluster(TomlFile::Parse(text, wanted.name + ".toml"), profiles);
  return text;
}

fs::path PlaceOfNewCluster(const ProfileFolders& profiles, const std::string& name) {
  ProfileFile(profiles.own(), name);  // throws for an invalid name
  if (IsOwnCluster(name)) {
    SPARFUSE_THROW(kConfig, fmt::format("cluster \"{}\": means the profile trials of the store; "
                                        "expected another name",
                                        name));
  }
  for (const char* extension : {".toml", ".json"}) {
    if (!profiles.Has(name + extension)) continue;
    SPARFUSE_THROW(
        kConfig,
        fmt::format(
            "cluster \"{}\": {} exists; expected a new name, because nothing is overwritten", name,
            profiles.File(name + extension).string()));
  }
  return profiles.own() / (name + ".toml");
}

}  // namespace sparfuse::harness
