#include "harness/machine/system.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "core/device/card.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/report/machines.hpp"
#include "harness/run/live/launch/launch_method.hpp"
#include "harness/run/live/launch/launcher.hpp"
#include "harness/run/live/run_fingerprints.hpp"
#include "harness/run/progress.hpp"
#include "harness/store/store_lock.hpp"
#include "harness/systems/detected_node.hpp"
#include "harness/systems/fingerprint.hpp"
#include "harness/systems/system_file.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The other files of the folder that describe an equal system. Files that are unreadable or not
// filled in do not count.
std::vector<fs::path> EqualSystems(const fs::path& file, const std::string& hash) {
  std::vector<fs::path> equal;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), none)) {
    const fs::path& other = entry.path();
    if (other.extension() != ".toml" || other.filename() == file.filename()) continue;
    try {
      const SystemDescription system(TomlFile::Read(other));
      if (system.Contradictions().empty() && system.Hash() == hash) equal.push_back(other);
    } catch (const Error&) {  // a check of that file reports it
    }
  }
  std::ranges::sort(equal);
  return equal;
}

}  // namespace

int SystemInitVerb(Program& program, const SystemInit& asked) {
  const fs::path file = SystemFile(program.systems(), asked.name);
  const Node node = DetectNode();
  if (asked.print) {
    fmt::print("{}", NodeText(node));
    return kDone;
  }
  MakeDirectories(file.parent_path());
  const StoreLock lock(program.store().results());  // several nodes may add themselves at once
  if (!SomethingIsAt(file)) {
    WriteFileDurably(file, NewSystemText(asked.name, node));
    fmt::print(
        "wrote {}: replace each {} by the value, which only you know, then `sparfuse system check "
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
  fmt::print("{}: added this node, which differs from the others, as node[{}]\n", file.string(),
             system.nodes().size());
  return kDone;
}

int SystemCheckVerb(Program& program, const std::string& name) {
  const fs::path file = SystemFile(program.systems(), name);
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

namespace {

constexpr int kRanksPerNode = 2;  // the fewest that also measure the link within a node

CellConfig ConfigOf(const SystemFingerprint& asked, const LaunchMethod& launch) {
  const int hosts = launch.across_hosts() && asked.ranks_per_node == 0 ? HostCount(launch) : 1;
  const int ranks = asked.ranks > 0 ? asked.ranks : hosts * kRanksPerNode;
  CellConfig config = FingerprintConfig(ranks);
  if (asked.ranks_per_node > 0) {
    config.ranks_per_node = asked.ranks_per_node;
  } else if (launch.across_hosts()) {
    config.ranks_per_node = RanksPerNode(launch, ranks);
  }
  if (!asked.link.empty()) {
    config.link = ParseLink(asked.link);
    config.mode = Mode::kEmulated;
    if (!config.link->has_within()) config.ranks_per_node = 1;
  }
  config.threads_per_worker = asked.threads;
  config.device = ValueOf<Place>(asked.device);
  config.transport = ValueOf<Transport>(asked.transport);
  return config;
}

void Check(const SystemFingerprint& asked) {
  if (asked.device == "cpu") {
    if (asked.transport != "nccl") return;
    SPARFUSE_THROW(kConfig,
                   "--transport nccl with --device cpu: NCCL's messages lie on cards; expected "
                   "--device cuda, or --transport mpi");
  }
  if (const std::string why = WhyNoCuda(); !why.empty()) {
    SPARFUSE_THROW(kUnsupported,
                   fmt::format("--device cuda: this machine has no CUDA device: {}", why));
  }
}

Table TableOf(const std::string& name, const ProfileOutcome& outcome) {
  const Fingerprint& fingerprint = *outcome.fingerprint;
  Table table;
  table.title = fmt::format("{}: {}", name, HardwareLine(outcome.system));
  table.caption = fmt::format(
      "{} rank(s), {} a node, {}, {}{}; medians of {} rounds, mean over ranks", fingerprint.ranks,
      fingerprint.ranks_per_node, NameOf(fingerprint.device), NameOf(fingerprint.transport),
      fingerprint.link ? fmt::format(", link {} (emulated)", ToJson(fingerprint.link).dump()) : "",
      outcome.n.value_or(0));
  table.columns = {"measured", "", "95 %", "slowest"};
  const json placement = outcome.machine.value("placement", json::array());
  for (const FingerprintQuantity& quantity : FingerprintQuantities()) {
    const FingerprintValue* value = Find(fingerprint, quantity);
    if (value == nullptr) continue;
    std::string slowest;
    if (value->worst) {
      std::vector<std::string> ranks;
      for (const int rank : value->worst->ranks)
        ranks.push_back(fmt::format(
            "{} on {}", rank, placement.at(static_cast<std::size_t>(rank)).get<std::string>()));
      slowest = fmt::format("{} (rank {})", ValueText(quantity, value->slowest()),
                            fmt::join(ranks, ", "));
    }
    table.rows.push_back(
        {quantity.words, ValueText(quantity, value->value),
         fmt::format("{} to {}", ValueText(quantity, value->low), ValueText(quantity, value->high)),
         slowest});
  }
  return table;
}

// The earlier outcome with as many ranks over the same link; null if there is none.
const ProfileOutcome* EarlierOf(const ProfileOutcomes& kept, const ProfileOutcome& outcome) {
  const auto found = std::ranges::find_if(kept, [&](const ProfileOutcome& each) {
    return each.fingerprint && each.config.workers == outcome.config.workers &&
           each.config.link == outcome.config.link;
  });
  return found == kept.end() ? nullptr : &*found;
}

// Prints the differences from the file's earlier fingerprint.
void PrintChanges(std::FILE* out, const ProfileOutcome& earlier, const ProfileOutcome& outcome) {
  const auto differences = DifferencesOf(*earlier.fingerprint, *outcome.fingerprint);
  for (const FingerprintDifference& each : differences)
    fmt::print(out, "changed: {}\n", SentenceOf(each, earlier.started_utc, "now"));
  if (differences.empty())
    fmt::print(out, "as it was at {}, within {:.0f} %\n", earlier.started_utc,
               100 * (kFingerprintsDifferBy - 1));
}

// Names of other files whose fingerprint cannot be told from this one.
std::vector<std::string> SameAs(const ProfileFolders& profiles, const std::string& name,
                                const ProfileOutcome& outcome) {
  std::vector<std::string> same;
  for (const std::string& other : FingerprintNames(profiles)) {
    if (other == name) continue;
    const ProfileOutcomes kept = ReadProfiles(FingerprintFile(profiles, other));
    const ProfileOutcome* theirs = EarlierOf(kept, outcome);
    if (theirs == nullptr) continue;
    const Fingerprint& one = *theirs->fingerprint;
    const Fingerprint& two = *outcome.fingerprint;
    if (WhatIsNotCompared(one, two).empty() && DifferencesOf(one, two).empty())
      same.push_back(other);
  }
  return same;
}

}  // namespace

int SystemFingerprintVerb(Program& program, const SystemFingerprint& asked) {
  const ProfileFolders& profiles = program.store().profiles();
  const fs::path systems = program.systems();
  const fs::path file = SystemFile(systems, asked.name).replace_extension(".fingerprint.json");
  Check(asked);
  RunOptions options = program.OptionsOfRuns(asked.launch);
  const CellConfig config = ConfigOf(asked, options.launch);
  ProfileOutcomes kept = SomethingIsAt(file) ? ReadProfiles(file) : ProfileOutcomes();
  CheckSameMachine(file, kept, ToJson(DescribeSystem()));
  if (::access(options.worker.c_str(), X_OK) != 0) {
    SPARFUSE_THROW(kConfig, fmt::format("no worker at {}: expected the executable sparfuse-worker",
                                        options.worker.string()));
  }
  MakeDirectories(program.store().results());
  const StoreLock lock(program.store().results());
  std::FILE* const out = program.json() ? stderr : stdout;
  options.progress = out;
  Progress progress(1, out);
  progress.Begin("fingerprint of " + asked.name, -1);
  std::optional<ProfileOutcome> outcome;
  {
    const Interruption interruption;
    outcome = TakeFingerprint(lock, config, options, program.store().results(),
                              Interruption::flag(), [&](double elapsed, const std::string& doing) {
                                progress.Tick(elapsed, progress.terminal() ? doing : "");
                              });
  }
  if (!outcome) return kInterrupted;
  progress.End("fingerprint of " + asked.name, "ok", "", outcome->seconds.value_or(0), 0);
  const ProfileOutcome* earlier = EarlierOf(kept, *outcome);
  if (program.json()) {
    PrintJson(ToJson(*outcome->fingerprint));
  } else {
    fmt::print("{}\n", Render(TableOf(asked.name, *outcome), TableFormat::kMarkdown));
  }
  if (earlier != nullptr) PrintChanges(out, *earlier, *outcome);
  if (const auto same = SameAs(profiles, asked.name, *outcome); !same.empty())
    fmt::print(out, "cannot be distinguished from {}\n", fmt::join(same, ", "));
  outcome->machine.erase("placement");
  PutProfile(kept, *outcome);
  WriteProfiles(file, kept);
  fmt::print(out, "{}: links of modelled trials, cluster = \"{}\"\n", file.string(), asked.name);
  return kDone;
}

}  // namespace sparfuse::harness
