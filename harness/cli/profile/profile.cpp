// Measures workloads, kernels and links of this machine and keeps the profile: `sparfuse profile`.
#include <fmt/format.h>

#include <charconv>

#include "core/coding/quantizers/quantizer.hpp"
#include "core/device/card.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/catalog/outside_part.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/machine/doctor.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/report/tables/table.hpp"
#include "harness/run/live/launch/launch_method.hpp"
#include "harness/run/plan/needed_profiles.hpp"
#include "harness/run/runner.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The finding of `sparfuse doctor` about `what`.
Finding Ask(const std::string& what, const DoctorPaths& paths) {
  for (Finding& finding : Examine(paths)) {
    if (finding.what == what) return finding;
  }
  SPARFUSE_THROW(kInternal, "doctor does not look at " + what);
}

void CheckPlace(const ProfileRequest& request, const LaunchMethod& launch) {
  for (const auto& [key, value] : {std::pair<std::string, std::string>("device", request.device),
                                   {"precision", request.precision}}) {
    const std::string wrong = WhatIsWrong(key, value);
    if (!wrong.empty())
      SPARFUSE_THROW(kConfig, fmt::format("--{} {}: expected {}", key, value, wrong));
  }
  if (launch.across_hosts() && !request.links.empty()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("--link {} with ranks on several hosts: a shaped link delays "
                               "messages on one host; expected no --link, or --launch local",
                               request.links.front()));
  }
  if (request.device == "cpu") {
    if (request.precision != "tf32") return;
    SPARFUSE_THROW(kConfig,
                   "--precision tf32 with --device cpu: only tensor cores compute with TF32; "
                   "expected fp32 or bf16, or --device cuda");
  }
  if (!request.links.empty()) {
    SPARFUSE_THROW(
        kConfig, fmt::format("--link {} with --device cuda: a shaped link delays messages between "
                             "hosts; expected no --link, or --device cpu",
                             request.links.front()));
  }
  if (const std::string why = WhyNoCuda(); !why.empty()) {
    SPARFUSE_THROW(kUnsupported,
                   fmt::format("--device cuda: this machine has no CUDA device: {}", why));
  }
}

bool IsAll(const std::vector<std::string>& names) {
  return names == std::vector<std::string>{"all"};
}

ProfileNeeds NeedsOf(const ProfileRequest& request, const Catalog& catalog) {
  ProfileNeeds needs;
  needs.warmup_steps = request.warmup;
  needs.steps = request.passes;
  needs.device = ValueOf<Place>(request.device);
  needs.precision = ValueOf<Precision>(request.precision);
  needs.threads_per_worker = request.threads;
  if (IsAll(request.sparsifiers)) {
    for (const auto& entry : catalog.sparsifiers) {
      if (entry.name.find('@') == std::string::npos) needs.sparsifiers.emplace_back(entry.name);
    }
  } else {
    for (const std::string& name : request.sparsifiers) {
      const bool outside = IsOutsidePart(name);
      if (!outside) NeedEntry(catalog.sparsifiers, "sparsifier", name);
      needs.sparsifiers.push_back(outside ? OutsidePartName("sparsifier", name, fs::current_path())
                                          : name);
    }
  }
  if (IsAll(request.quantizers)) {
    for (const auto& descriptor : Quantizers()) needs.quantizers.emplace_back(descriptor.name);
  } else if (request.quantizers != std::vector<std::string>{"none"}) {
    for (const std::string& name : request.quantizers) {
      FindQuantizer(name);  // throws for an unknown name
      needs.quantizers.push_back(name);
    }
  }
  return needs;
}

// The numbers of ranks to measure with at once: 1, 2, 4, ... up to the most. Over several hosts the
// most itself is included.
std::vector<int> RanksOf(const ProfileRequest& request, const LaunchMethod& launch) {
  std::vector<int> counts;
  for (int ranks = 1; ranks <= request.most_ranks; ranks *= 2) counts.push_back(ranks);
  if (launch.across_hosts() && counts.back() != request.most_ranks)
    counts.push_back(request.most_ranks);
  return counts;
}

// Makes one part for each workload. Its cells are the profiles themselves.
Experiment ExperimentOf(const ProfileRequest& request, const LaunchMethod& launch,
                        const Catalog& catalog) {
  ProfileNeeds needs = NeedsOf(request, catalog);
  std::vector<std::optional<LinkShape>> links = {std::nullopt};
  for (const std::string& link : request.links) links.push_back(ParseLink(link));
  Experiment experiment;
  experiment.id = "profile";
  for (const std::string& workload : request.workloads) {
    const auto& entry = NeedTrainable(catalog, workload);
    needs.workload = workload;
    needs.workload_options = ResolveOptions("workload", OptionsWithoutRecipe(entry), {});
    needs.recipe = ResolveOptions("recipe", RecipeOf(entry), {});
    needs.batch_per_worker = request.batch.value_or(static_cast<int>(entry.batch_per_worker));
    Part part;
    part.id = workload;
    part.timeout_seconds = 3600;
    for (const auto& link : links) {
      for (const int ranks : RanksOf(request, launch)) {
        if (ranks == 1 && link) continue;
        CellConfig config = ProfileConfig(needs, ranks, link, request.ranks_per_node);
        if (launch.across_hosts()) config.ranks_per_node = RanksPerNode(launch, ranks);
        part.cells.emplace_back(std::move(config));
      }
    }
    experiment.parts.push_back(std::move(part));
  }
  return experiment;
}

}  // namespace

LinkShape ParseLink(const std::string& text) {
  constexpr const char* kKeys[] = {"gbps", "alpha_us", "intra_node_gbps", "intra_node_us"};
  json link = json::object();
  const char* at = text.data();
  const char* end = text.data() + text.size();
  bool good = true;
  for (const char* key : kKeys) {
    double number = 0;
    const auto [stopped, error] = std::from_chars(at, end, number);
    good = error == std::errc() && (stopped == end || *stopped == ':');
    link[key] = number;
    if (!good || stopped == end) {
      at = stopped;
      break;
    }
    at = stopped + 1;
  }
  good =
      good && at == end && WhatIsWrong("link", link).empty() &&
      link.at("alpha_us") >= kMinEmulableAlphaMicroseconds &&
      link.value("intra_node_us", kMinEmulableAlphaMicroseconds) >= kMinEmulableAlphaMicroseconds;
  if (!good) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("--link {}: expected GBPS:ALPHA_US or GBPS:ALPHA_US:GBPS:ALPHA_US, the "
                    "latter two of links within nodes: {} Gbit/s and start-up times of {} "
                    "us, less than which sleeping cannot emulate; as in 1:100 or "
                    "1:100:10:100",
                    text, Text(kLinkGbps),
                    Text({kMinEmulableAlphaMicroseconds, kLinkAlphaMicroseconds.most})));
  }
  return *StoredLink(link);
}

int ProfileVerb(Program& program, const ProfileRequest& request) {
  const DoctorPaths paths{program.root(), program.store().results(), program.worker(),
                          program.Python()};
  RunOptions options = program.OptionsOfRuns(request.launch);
  CheckPlace(request, options.launch);
  Experiment experiment = ExperimentOf(request, options.launch, program.catalog());
  std::vector<CellConfig> wanted;
  for (const Part& part : experiment.parts) {
    for (const Cell& cell : part.cells) wanted.push_back(cell.config);
  }
  options.progress = program.json() ? stderr : stdout;
  program.LearnNodes(options);
  const PlanContext context = program.Context(options);
  fs::path file;
  ProfileOutcomes kept;
  if (!request.name.empty()) {
    if (IsOwnCluster(request.name)) {
      SPARFUSE_THROW(kConfig, fmt::format("--name {}: means the profile trials of the store as a "
                                          "cluster; expected another name",
                                          request.name));
    }
    file = ProfileFile(program.store().profiles().own(), request.name);
    if (SomethingIsAt(file)) kept = ReadProfiles(file);
    CheckSameMachine(file, kept, ToJson(context.SystemOfLaunches()));
  }
  // Outcomes in the file are not measured again, whatever became of their trials.
  const auto in_file = [&](const CellConfig& config) {
    return request.fresh ? nullptr : FindMeasured(file, kept, config);
  };
  for (Part& part : experiment.parts)
    std::erase_if(part.cells, [&](const Cell& cell) { return in_file(cell.config) != nullptr; });

  if (const Finding load = Ask("load", paths); load.level == Finding::Level::kWarning)
    fmt::print(stderr, "warning: load {}\n", load.message);
  options.fresh = request.fresh;
  const RunSummary summary = program.Run({experiment}, options);
  fmt::print(options.progress, "{} measured well, {} failed, {} were in the store\n", summary.ok,
             summary.failed, summary.present);
  if (summary.interrupted) return kInterrupted;
  if (summary.failed > 0) return kTrialFailed;

  const std::vector<TrialRow> rows = program.Rows();
  ProfileOutcomes outcomes;
  for (const CellConfig& config : wanted) {
    if (const ProfileOutcome* outcome = in_file(config)) {
      outcomes.push_back(*outcome);
      continue;
    }
    const TrialRow* row =
        FindTrial(program.catalog(), rows, config, HashOf(context.SystemOf(config)));
    // The hosts did not describe themselves, or others ran than the described ones.
    if (row == nullptr && options.launch.across_hosts())
      row = FindTrial(program.catalog(), rows, config, "");
    if (row == nullptr) SPARFUSE_THROW(kInternal, "a profile trial that ran is not in the store");
    const fs::path directory = program.store().results() / row->directory;
    if (options.launch.across_hosts()) {
      const json ran = ReadJsonFile(directory / "outcome.json").at("machine");
      CheckPlacement(
          ReadPrivateFacts(directory).NamesOf(ran.value("placement", std::vector<std::string>())),
          config, options.launch);
    }
    outcomes.push_back(ProfileOfTrial(directory));
  }
  if (program.json()) {
    PrintJson(ToJson(outcomes));
  } else {
    for (const auto& table : ProfileTables(outcomes)) {
      fmt::print("{}\n", Render(table, TableFormat::kMarkdown));
    }
  }
  if (!file.empty()) {
    for (const ProfileOutcome& outcome : outcomes) PutProfile(kept, outcome);
    WriteProfiles(file, kept);
    fmt::print(options.progress, "{}: for modelled trials, cluster = \"{}\"\n", file.string(),
               request.name);
  }
  return kDone;
}

}  // namespace sparfuse::harness
