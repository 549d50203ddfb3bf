// Compares the results of the same experiments on several machines: `sparfuse compare`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "harness/bundle/verify.hpp"
#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/compare/comparison_table.hpp"
#include "harness/compare/modelled/forced_plan.hpp"
#include "harness/compare/modelled/modelled_side.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/machine/system.hpp"
#include "harness/report/machines.hpp"
#include "harness/store/origin.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kHere = "here";
constexpr std::string_view kExtension = ".sparfuse";

// The origin of trials: the store, or a bundle.
struct Source {
  std::string name;
  std::vector<TrialRow> rows;
  std::function<json(const TrialRow&)> outcome;
};

Source SourceOfStore(const Program& program) {
  const fs::path results = program.store().results();
  return {results.string(), program.Rows(), OutcomesIn(results)};
}

Source SourceOfBundle(const fs::path& file) {
  const auto bundle = std::make_shared<Bundle>(file);
  Verification verified = Verify(*bundle);
  Source source{file.string(), std::move(verified.rows), [bundle](const TrialRow& row) {
                  const auto files = bundle->Trial(row.trial_id).files;
                  const auto found = files.find("outcome.json");
                  return found == files.end() ? json() : json::parse(found->second, nullptr, false);
                }};
  if (!verified.table_differs.empty()) {
    SPARFUSE_THROW(kData, fmt::format("{}; `sparfuse verify` lists {} problem(s)",
                                      verified.table_differs, verified.problems.size()));
  }
  for (const std::string& problem : verified.problems)
    fmt::print(stderr, "warning: {}; left out\n", Visible(problem));
  for (const std::string& what : WhatIsNotChecked(verified))
    fmt::print(stderr, "note: {}: {}\n", file.string(), what);
  if (!source.rows.empty() && std::ranges::all_of(source.rows, &TrialRow::imported)) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("{}: imported results of others are not compared; `sparfuse table` lists them",
                    file.string()));
  }
  SortByAge(source.rows);
  TellStoresApart(source.rows, "");
  return source;
}

SystemSide SideOf(const Source& source, const std::string& machine, std::string name) {
  SystemSide side{std::move(name), MachinesOf(source.rows).at(machine), {}, source.outcome};
  for (const TrialRow& row : source.rows) {
    if (MachineOf(row) == machine) side.rows.push_back(row);
  }
  return side;
}

// Finds the sides by "FILE.sparfuse", "FILE.sparfuse:HASH", the first digits of the hash of a
// system of the store, or `here`.
std::vector<SystemSide> SidesOf(const Program& program, const std::vector<std::string>& wanted) {
  std::optional<Source> store;
  const auto of_store = [&]() -> const Source& {
    if (!store) store = SourceOfStore(program);
    return *store;
  };
  std::vector<SystemSide> sides;
  for (const std::string& each : wanted) {
    const std::size_t end = each.rfind(kExtension);
    if (end == std::string::npos) {
      const std::string head = each == kHere ? HashOf(DescribeSystem()) : each;
      const std::string machine = NeedMachine(MachinesOf(of_store().rows), head, of_store().name);
      sides.push_back(SideOf(of_store(), machine, each == kHere ? kHere : ShownMachine(machine)));
      continue;
    }
    const fs::path file = each.substr(0, end + kExtension.size());
    std::string head = each.substr(end + kExtension.size());
    if (head.starts_with(':')) head.erase(0, 1);
    const Source bundle = SourceOfBundle(file);
    const auto machines = MachinesOf(bundle.rows);
    const std::string name = file.stem().string();
    sides.push_back(SideOf(bundle, NeedMachine(machines, head, bundle.name),
                           machines.size() == 1 ? name : name + ":" + head));
  }
  for (std::size_t i = 0; i < sides.size(); ++i) {  // bundles in two folders may share a name
    const auto before = std::count_if(sides.begin(), sides.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const auto& side) { return side.name == sides[i].name; });
    if (before > 0) sides[i].name += fmt::format(" ({})", before + 1);
  }
  if (sides.size() < 2) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format("expected two systems or more to compare: bundles, or systems of {}:{}",
                    of_store().name, ListOf(MachinesOf(of_store().rows))));
  }
  return sides;
}

// Throws and lists each side's experiments, as the sides have none in common.
[[noreturn]] void FailWithNothing(const std::vector<SystemSide>& sides,
                                  const CompareRequest& request) {
  std::string text;
  for (const SystemSide& side : sides) {
    std::set<std::string> experiments;
    for (const TrialRow& row : side.rows) {
      if (row.kind != "profile") experiments.insert(row.experiment);
    }
    text +=
        fmt::format("\n  {}: {}", side.name,
                    experiments.empty() ? "none" : fmt::format("{}", fmt::join(experiments, ", ")));
  }
  SPARFUSE_THROW(kConfig,
                 fmt::format("no two of these systems have a common cell {}except the cells of {}; "
                             "their experiments:{}",
                             request.experiments.empty()
                                 ? ""
                                 : fmt::format("of {} ", fmt::join(request.experiments, ", ")),
                             request.reference, text));
}

// The index of a system among the sides. Throws Error{kConfig} if no side has the name.
std::size_t SideNamed(const std::vector<SystemSide>& sides, const std::string& name,
                      const std::string& option) {
  std::vector<std::string> known;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    if (sides[side].name == name) return side;
    known.push_back(sides[side].name);
  }
  SPARFUSE_THROW(kConfig, fmt::format("{}: no system that is compared has the name \"{}\"{}",
                                      option, name, Suggestion(name, known)));
}

// The profile that --profile names for each side; "" if it names none.
std::vector<std::string> NamedProfiles(const std::vector<SystemSide>& sides,
                                       const std::vector<std::string>& given) {
  std::vector<std::string> names(sides.size());
  for (const std::string& each : given) {
    const std::string option = "--profile " + each;
    const std::size_t equals = each.rfind('=');
    if (equals == std::string::npos || equals + 1 == each.size())
      SPARFUSE_THROW(
          kConfig, fmt::format("{}: expected SYSTEM=NAME, as {}=NAME", option, sides.back().name));
    std::string& name = names[SideNamed(sides, each.substr(0, equals), option)];
    if (!name.empty())
      SPARFUSE_THROW(kConfig, fmt::format("{}: expected one profile for a system, and not {} too",
                                          option, name));
    name = each.substr(equals + 1);
  }
  return names;
}

// The models of the sides. Sides with the same profile share its draws.
std::vector<std::unique_ptr<ModelledSide>> ModelsOf(Program& program,
                                                    const std::vector<SystemSide>& sides,
                                                    const std::vector<std::string>& named) {
  const ProfileFolders& profiles = program.store().profiles();
  std::vector<std::unique_ptr<ModelledSide>> models;
  for (std::size_t side = 0; side < sides.size(); ++side) {
    SideProfile profile = ProfileOfSide(sides[side], program.catalog(), profiles, named[side]);
    int stream = static_cast<int>(side);
    for (std::size_t other = side; other-- > 0;) {
      if (models[other]->profile().outcomes == profile.outcomes) stream = static_cast<int>(other);
    }
    models.push_back(
        std::make_unique<ModelledSide>(profiles, sides[side].name, std::move(profile), stream));
  }
  return models;
}

// Adds the model's results to the comparison. Returns what was asked of the model.
ModelRequest AddModel(Program& program, const std::vector<SystemSide>& sides,
                      const CompareVerbRequest& request, SystemComparison& comparison) {
  ModelRequest asked{request.transport, request.with_plan, {}};
  if (!asked.transport && asked.with_plan.empty()) {
    if (!request.profiles.empty())
      SPARFUSE_THROW(
          kConfig,
          fmt::format("--profile {}: expected with --transport or --with-plan, which need a model",
                      request.profiles.front()));
    return asked;
  }
  const auto models = ModelsOf(program, sides, NamedProfiles(sides, request.profiles));
  for (const auto& model : models) asked.profiles.push_back(model->profile().name);
  if (asked.transport) CarryOver(comparison, models);
  if (!asked.with_plan.empty()) {
    ForcePlans(comparison, sides, SideNamed(sides, asked.with_plan, "--with-plan"),
               program.disturbed(), models);
  }
  return asked;
}

void WriteExperiment(Program& program, const std::vector<SystemSide>& sides,
                     const CompareVerbRequest& request, const SystemComparison& comparison) {
  const fs::path& file = request.write_experiment;
  if (file.extension() != ".toml" || SomethingIsAt(file)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("--write-experiment {}: expected the name of a new file that "
                               "ends in .toml",
                               file.string()));
  }
  const PlanExperiment made =
      ExperimentOfPlans(comparison, sides, SideNamed(sides, request.with_plan, "--with-plan"),
                        program.catalog(), program.store().profiles(), fs::absolute(file));
  for (const std::string& why : made.left_out) fmt::print(stderr, "left out: {}\n", why);
  WriteFileDurably(file, made.text);
  fmt::print(stderr,
             "{}: {} plan(s) of {}, experiment {}. On the other system: `sparfuse run {}`; then "
             "compare again\n",
             file.string(), made.plans, request.with_plan, made.id, file.string());
}

void PrintComparison(const SystemComparison& comparison, const std::vector<SystemSide>& sides,
                     const CompareRequest& request, const ModelRequest& modelled,
                     const std::string& format) {
  const bool latex = format == "latex";
  for (const std::string& sentence : SummaryOf({comparison, sides, request, modelled}))
    fmt::print("{}{}.\n", latex ? "% " : "", sentence);
  for (const std::string& sentence : comparison.hardware)
    fmt::print("{}{}.\n", latex ? "% " : "", sentence);
  fmt::print("\n");
  for (const Table& table : TablesOf({comparison, sides, request, modelled}))
    fmt::print("{}\n", Render(table, latex ? TableFormat::kLatex : TableFormat::kMarkdown));
  std::fflush(stdout);
}

}  // namespace

int CompareVerb(Program& program, const CompareVerbRequest& request) {
  const std::vector<SystemSide> sides = SidesOf(program, request.sides);
  CompareRequest asked = request.compare;
  asked.disturbed = program.disturbed();
  asked.lone = request.transport;
  SystemComparison comparison = CompareSystems(sides, asked);
  if (comparison.parts.empty()) FailWithNothing(sides, asked);
  const ModelRequest modelled = AddModel(program, sides, request, comparison);
  const json numbers = ComparisonJson({comparison, sides, asked, modelled});
  if (program.json()) {
    PrintJson(numbers);
  } else if (request.format == "csv") {
    fmt::print("{}", ComparisonCsv({comparison, sides, asked, modelled}));
  } else {
    PrintComparison(comparison, sides, asked, modelled, request.format);
  }
  if (!request.write_experiment.empty()) WriteExperiment(program, sides, request, comparison);
  if (request.figures.empty()) return kDone;
  MakeDirectories(request.figures);
  const std::filesystem::path file = request.figures / "comparison.json";
  WriteFileDurably(file, numbers.dump(1) + "\n");
  RenderFile(program, {"compare", "--data", file.string(), "--out", request.figures.string()},
             program.json() || request.format != "md");
  return kDone;
}

}  // namespace sparfuse::harness
