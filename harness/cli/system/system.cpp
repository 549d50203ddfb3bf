// Describes this node in a system's file, and checks such a file: `sparfuse system`.
#include "harness/cli/system/system.hpp"

#include <fmt/format.h>

#include "harness/files/durable_file.hpp"
#include "harness/report/machines.hpp"
#include "harness/store/store_lock.hpp"
#include "harness/systems/detected_node.hpp"
#include "harness/systems/system_file.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path FolderOf(const Program& program) { return program.store().results() / "systems"; }

// The other files of the folder that describe an equal system; those that nobody has filled in, or
// that cannot be read, are none.
std::vector<fs::path> EqualSystems(const fs::path& file, const std::string& hash) {
  std::vector<fs::path> equal;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), none)) {
    const fs::path& other = entry.path();
    if (other.extension() != ".toml" || other.filename() == file.filename()) continue;
    try {
      const SystemDescription system(TomlFile::Read(other));
      if (system.Contradictions().empty() && system.Hash() == hash) equal.push_back(other);
    } catch (const Error&) {  // is told where that file is checked
    }
  }
  std::ranges::sort(equal);
  return equal;
}

}  // namespace

int SystemInitVerb(Program& program, const SystemInit& asked) {
  const fs::path file = SystemFile(FolderOf(program), asked.name);
  const Node node = DetectNode();
  if (asked.print) {
    fmt::print("{}", NodeText(node));
    return kDone;
  }
  MakeDirectories(file.parent_path());
  const StoreLock lock(program.store().results());  // nodes may add themselves at once
  if (!SomethingIsAt(file)) {
    WriteFileDurably(file, NewSystemText(asked.name, node));
    fmt::print(
        "wrote {}: write what only you know in the place of {}, then `sparfuse system check "
        "{}`\n",
        file.string(), kChangeMe, asked.name);
    return kDone;
  }
  const SystemDescription system(TomlFile::Read(file));
  if (const int found = system.Find(node); found >= 0) {
    fmt::print("{}: node[{}] is as this one; nothing to add\n", file.string(), found);
    return kDone;
  }
  std::string text = ReadFile(file);
  if (!text.ends_with('\n')) text += '\n';
  WriteFileDurably(file, text + NodeText(node));
  fmt::print("{}: added this node, unlike those there, as node[{}]\n", file.string(),
             system.nodes().size());
  return kDone;
}

int SystemCheckVerb(Program& program, const std::string& name) {
  const fs::path file = SystemFile(FolderOf(program), name);
  if (!SomethingIsAt(file)) {
    SPARFUSE_THROW(kConfig, fmt::format("system \"{}\": expected {}, which `sparfuse system init "
                                        "{}` begins",
                                        name, file.string(), name));
  }
  const SystemDescription system(TomlFile::Read(file));
  const Node here = DetectNode();
  std::vector<SystemProblem> problems = system.Contradictions();
  for (SystemProblem& problem : system.ContradictionsWith(here))
    problems.push_back(std::move(problem));
  json list = json::array();
  for (const SystemProblem& problem : problems) {
    list.push_back({{"where", problem.where},
                    {"key", problem.key},
                    {"value", problem.value},
                    {"expected", problem.expected}});
  }
  if (!problems.empty()) {
    if (program.json()) PrintJson({{"problems", list}});
    for (const SystemProblem& problem : problems)
      fmt::print(stderr, "error: {}\n", TextOf(problem));
    return kTrialFailed;
  }
  const std::string hash = system.Hash();
  const std::vector<fs::path> equal = EqualSystems(file, hash);
  if (program.json()) {
    json same = json::array();
    for (const fs::path& each : equal) same.push_back(each.string());
    PrintJson({{"problems", list}, {"hash", hash}, {"node", system.Find(here)}, {"same", same}});
    return kDone;
  }
  fmt::print("{}: {}, system {}; this one is as node[{}]\n", file.string(), system.Summary(),
             hash.substr(0, kShownMachineHash), system.Find(here));
  for (const fs::path& each : equal) fmt::print("the same system as {}\n", each.string());
  return kDone;
}

}  // namespace sparfuse::harness
