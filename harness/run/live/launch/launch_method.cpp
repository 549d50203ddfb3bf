#include "harness/run/live/launch/launch_method.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {

namespace {

constexpr std::array<const char*, 8> kWithinWords = {
    "ranks", "ranks_per_node", "nodes", "timeout", "worker", "hostfile", "interface", "nonce"};
constexpr std::array<const char*, 2> kWholeWords = {"arguments", "environment"};

bool Is(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string AllNames() {
  return fmt::format("{{{}}}, {{{}}}", fmt::join(kWithinWords, "}, {"),
                     fmt::join(kWholeWords, "}, {"));
}

// Calls text(TEXT) and placeholder(NAME) in the order of `word`. An unclosed brace gives the name
// "" and ends the word.
void Split(const std::string& word, const auto& text, const auto& placeholder) {
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t open = word.find('{', at);
    text(word.substr(at, open - at));
    if (open == std::string::npos) return;
    const std::size_t close = word.find('}', open);
    if (close == std::string::npos) return placeholder(std::string());
    placeholder(word.substr(open + 1, close - open - 1));
    at = close + 1;
  }
}

std::string Filled(const std::string& word, const std::map<std::string, std::string>& values) {
  std::string filled;
  Split(
      word, [&](const std::string& text) { filled += text; },
      [&](const std::string& name) { filled += values.at(name); });
  return filled;
}

void CheckWord(const TomlFile& file, const std::string& pointer, const std::string& word) {
  Split(
      word, [](const std::string&) {},
      [&](const std::string& name) {
        if (Is(kWithinWords, name)) return;
        if (!Is(kWholeWords, name)) file.FailValue(pointer, "in braces one of " + AllNames());
        if (word != "{" + name + "}")
          file.FailValue(pointer, "{" + name + "} as a word of its own: it is any number of words");
      });
}

// Reads a list of words; empty if the key is missing.
std::vector<std::string> ReadWords(const TomlFile& file, const std::string& pointer) {
  const nlohmann::json* list = file.Find(pointer);
  if (list == nullptr) return {};
  if (!list->is_array() || list->empty() ||
      !std::ranges::all_of(*list, [](const auto& word) { return word.is_string(); })) {
    file.FailValue(pointer, "a list of words");
  }
  std::vector<std::string> words;
  for (std::size_t i = 0; i < list->size(); ++i) {
    words.push_back((*list)[i]);
    CheckWord(file, fmt::format("{}/{}", pointer, i), words.back());
  }
  return words;
}

}  // namespace

LaunchTemplate LaunchTemplate::Read(const std::filesystem::path& path) {
  const TomlFile file = TomlFile::Read(path);
  const std::array<std::string, 2> known = {"command", "end"};
  file.CheckKeys("", "a launcher's template", known);
  const std::string pointer = "/command";
  if (file.Find(pointer) == nullptr)
    file.Fail("", "no command: expected command = [\"word\", ...], how ranks are started");
  LaunchTemplate made;
  made.words_ = ReadWords(file, pointer);
  made.end_ = ReadWords(file, "/end");
  for (std::size_t i = 0; i < made.end_.size(); ++i) {
    Split(
        made.end_[i], [](const std::string&) {},
        [&](const std::string& name) {
          if (name != "nonce") file.FailValue(fmt::format("/end/{}", i), "in braces {nonce} alone");
        });
  }
  for (const char* needed : {"ranks", "worker", "arguments", "environment"}) {
    if (!made.Uses(needed)) file.FailValue(pointer, fmt::format("{{{}}} among the words", needed));
  }
  return made;
}

bool LaunchTemplate::Uses(const std::string& placeholder) const {
  return std::ranges::any_of(words_, [&](const std::string& word) {
    return word.find("{" + placeholder + "}") != std::string::npos;
  });
}

std::vector<std::string> LaunchTemplate::Fill(const TemplateValues& values) const {
  std::vector<std::string> filled;
  for (const std::string& word : words_) {
    if (word == "{arguments}" || word == "{environment}") {
      const auto& several = word == "{arguments}" ? values.arguments : values.environment;
      filled.insert(filled.end(), several.begin(), several.end());
    } else {
      filled.push_back(Filled(word, values.within_words));
    }
  }
  return filled;
}

std::vector<std::string> LaunchTemplate::FillEnd(const std::string& nonce) const {
  std::vector<std::string> filled;
  for (const std::string& word : end_) filled.push_back(Filled(word, {{"nonce", nonce}}));
  return filled;
}

namespace {

namespace fs = std::filesystem;
using Kind = LaunchMethod::Kind;

[[noreturn]] void Fail(const std::string& message) { SPARFUSE_THROW(kConfig, message); }

std::string PmiOfSrun() {
  bool ok = false;
  const std::string list = CommandOutput("srun --mpi=list 2>&1", ok);
  if (!ok)
    Fail(fmt::format("--launch srun: `srun --mpi=list` failed: \"{}\"; expected Slurm", list));
  std::string pmi = PickPmi(list);
  if (pmi.empty()) {
    Fail(
        fmt::format("--launch srun: `srun --mpi=list` has no pmix, with which ranks of Open MPI "
                    "find one another: \"{}\"; expected a Slurm with its PMIx plugin, or --launch "
                    "mpirun within the allocation",
                    list));
  }
  return pmi;
}

Kind KindOf(const LaunchOptions& options) {
  if (options.launch.empty()) return options.hostfile.empty() ? Kind::kLocal : Kind::kMpirun;
  if (options.launch == "local") return Kind::kLocal;
  if (options.launch == "mpirun") return Kind::kMpirun;
  if (options.launch == "srun") return Kind::kSrun;
  if (options.launch.ends_with(".toml")) return Kind::kTemplate;
  Fail(
      fmt::format("--launch {}: expected local, mpirun, srun or the file of a template, "
                  "NAME.toml",
                  options.launch));
}

// Checks that a placeholder and its option are given together.
void CheckPlaceholder(const LaunchOptions& options, const LaunchTemplate& form,
                      const std::string& name, bool given, bool needed) {
  if (form.Uses(name) && !given) {
    Fail(fmt::format("{}: command has {{{}}}: expected --{}", options.launch, name, name));
  }
  if (given && needed && !form.Uses(name)) {
    Fail(fmt::format("--{} with {}: expected {{{}}} in its command", name, options.launch, name));
  }
}

}  // namespace

std::string PickPmi(const std::string& list) {
  constexpr std::string_view kVersioned = "pmix_v";
  std::string best;
  int newest = -1;
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    // Such lines are "srun: pmix", "specific pmix plugin versions available: pmix_v3,pmix_v4".
    if (const auto colon = line.rfind(':'); colon != std::string::npos) line.erase(0, colon + 1);
    std::ranges::replace(line, ',', ' ');
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == "pmix") return word;
      if (!word.starts_with(kVersioned)) continue;
      int version = 0;
      std::from_chars(word.data() + kVersioned.size(), word.data() + word.size(), version);
      if (version <= newest) continue;
      newest = version;
      best = word;
    }
  }
  return best;
}

LaunchMethod ReadLaunchMethod(const LaunchOptions& options) {
  LaunchMethod method;
  method.kind = KindOf(options);
  method.interface = options.interface;
  method.oversubscribe = options.oversubscribe;
  if (!options.hostfile.empty()) {
    if (method.kind == Kind::kLocal || method.kind == Kind::kSrun) {
      Fail(
          fmt::format("--hostfile {} with --launch {}: expected --launch mpirun or a template "
                      "that uses it",
                      options.hostfile.string(), options.launch));
    }
    if (!SomethingIsAt(options.hostfile))
      Fail(fmt::format(
          "--hostfile {}: no such file; expected a file with a line \"NAME slots=N\" for each host",
          options.hostfile.string()));
    method.hostfile = fs::absolute(options.hostfile);
  }
  if (options.ship && method.kind != Kind::kSrun && method.kind != Kind::kMpirun) {
    Fail(fmt::format(
        "--ship with --launch {}: expected --launch srun or mpirun, which send the files",
        options.launch.empty() ? "local" : options.launch));
  }
  if (!options.interface.empty()) NeedInterface(options.interface);
  if (method.kind == Kind::kSrun) method.pmi = PmiOfSrun();
  if (method.kind == Kind::kTemplate) {
    method.form = LaunchTemplate::Read(options.launch);
    CheckPlaceholder(options, method.form, "hostfile", !options.hostfile.empty(), true);
    CheckPlaceholder(options, method.form, "interface", !options.interface.empty(), false);
  }
  return method;
}

void CheckMayLaunch(const LaunchMethod& method) {
  if (method.kind == Kind::kSrun && std::getenv("SLURM_JOB_ID") == nullptr) {
    Fail(
        "--launch srun: SLURM_JOB_ID is not set: expected to be called within an allocation "
        "(salloc, or a script of sbatch)");
  }
}

// The hostfile of a template has the scheduler's form.
std::vector<Host> HostsOf(const LaunchMethod& launch) {
  return ReadHostfile(launch.hostfile, launch.kind == LaunchMethod::Kind::kTemplate
                                           ? HostfileForm::kAny
                                           : HostfileForm::kOpenMpi);
}

int HostCount(const LaunchMethod& launch) {
  if (!launch.hostfile.empty()) return static_cast<int>(HostsOf(launch).size());
  if (launch.kind != LaunchMethod::Kind::kSrun) {
    SPARFUSE_THROW(kConfig,
                   "ranks over several hosts: expected --hostfile FILE, which lists the hosts, or "
                   "--launch srun");
  }
  CheckMayLaunch(launch);
  const char* text = std::getenv("SLURM_JOB_NUM_NODES");
  const int hosts = text == nullptr ? 0 : std::atoi(text);
  if (hosts < 1) {
    SPARFUSE_THROW(kConfig, fmt::format("SLURM_JOB_NUM_NODES={}: expected the allocation's number "
                                        "of nodes, as Slurm sets it",
                                        text == nullptr ? "" : text));
  }
  return hosts;
}

int RanksPerNode(const LaunchMethod& launch, int ranks) {
  if (!launch.hostfile.empty()) return RanksPerHost(HostsOf(launch), ranks, launch.hostfile);
  const int hosts = HostCount(launch);
  return (ranks + hosts - 1) / hosts;
}

void CheckPlacement(const std::vector<std::string>& placement, const CellConfig& config,
                    const LaunchMethod& launch) {
  for (std::size_t one = 0; one < placement.size(); ++one) {
    for (std::size_t other = 0; other < one; ++other) {
      const auto per_node = static_cast<std::size_t>(config.ranks_per_node);
      const bool same_node = one / per_node == other / per_node;
      if (same_node == (placement[one] == placement[other])) continue;
      SPARFUSE_THROW(
          kConfig,
          fmt::format(
              "{}: ranks {} and {} of {} ran on \"{}\" and \"{}\", and {} ranks a host were "
              "wanted: expected different machines; then measure again with --fresh",
              launch.hostfile.empty() ? "srun" : launch.hostfile.string(), other, one,
              config.workers, placement[other], placement[one], per_node));
    }
  }
}

}  // namespace sparfuse::harness
