#include "harness/clusters/cluster_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/profile_file.hpp"
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

// Follows a value over several lines.
class ValueScanner {
 public:
  // Whether the value continues in the next line.
  bool GoesOn(std::string_view line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string_view rest = line.substr(i);
      if (!quotes_.empty()) {
        if (quotes_.front() == '"' && rest.front() == '\\') {
          ++i;
        } else if (rest.starts_with(quotes_)) {
          i += quotes_.size() - 1;
          quotes_ = {};
        }
      } else if (rest.front() == '#') {
        break;
      } else if (rest.starts_with("\"\"\"") || rest.starts_with("'''")) {
        quotes_ = rest.substr(0, 3) == "'''" ? "'''" : "\"\"\"";
        i += 2;
      } else if (rest.front() == '"' || rest.front() == '\'') {
        quotes_ = rest.front() == '"' ? "\"" : "'";
      } else if (rest.front() == '[' || rest.front() == '{') {
        ++depth_;
      } else if (rest.front() == ']' || rest.front() == '}') {
        --depth_;
      }
    }
    if (quotes_.size() == 1) quotes_ = {};  // a single-line text ends with its line
    return depth_ > 0 || !quotes_.empty();
  }

 private:
  int depth_ = 0;
  std::string_view quotes_;  // the quotes that end the open text
};

// A key, or the head of a table, without spaces and quotes.
std::string Bare(std::string_view text) {
  std::string bare;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '"' && c != '\'' && c != '\r') bare += c;
  }
  return bare;
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

std::string WithoutInput(const std::string& text, const std::string& name) {
  const std::string wanted = "input." + name;
  const auto is_wanted = [&](const std::string& key) {
    return key == wanted || key.starts_with(wanted + ".");
  };
  std::string made, table;
  bool goes_on = false, taken = false;
  ValueScanner value;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string line = text.substr(begin, end - begin);
    begin = end;
    if (!goes_on) {
      const std::string bare = Bare(line.substr(0, line.find('#')));
      const std::size_t equals = line.find('=');
      value = {};
      if (bare.starts_with("[") && !bare.starts_with("[[")) {
        table = bare.substr(1, bare.find(']') - 1);
        taken = is_wanted(table);
      } else if (bare.starts_with("[[")) {
        table = bare;
        taken = false;
      } else if (bare.find('=') != std::string::npos) {
        const std::string key = Bare(line.substr(0, equals));
        taken = is_wanted(table) || is_wanted(table.empty() ? key : table + "." + key);
        goes_on = value.GoesOn(std::string_view(line).substr(equals + 1));
      } else {
        taken = false;  // a comment or an empty line
      }
    } else {
      goes_on = value.GoesOn(line);
    }
    made += taken ? "# " + line : line;
  }
  return made;
}

}  // namespace sparfuse::harness
