// Compares what machines say of the same experiments: `sparfuse compare`.
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
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kShownHash = 12;
constexpr const char* kHere = "here";
constexpr std::string_view kExtension = ".sparfuse";

// The machines whose trials the store has, with a line about each.
std::map<std::string, std::string> MachinesOf(const std::vector<TrialRow>& rows) {
  std::map<std::string, std::string> machines;
  for (const TrialRow& row : rows) {
    const std::string machine = MachineOf(row);
    if (!machine.empty() && row.kind != "profile") machines[machine] = HardwareLine(row);
  }
  return machines;
}

std::string Listed(const std::map<std::string, std::string>& machines) {
  std::string text;
  for (const auto& [hash, hardware] : machines)
    text += fmt::format("\n  {}  {}", hash.substr(0, kShownHash), hardware);
  return text.empty() ? "\n  none" : text;
}

// The one machine that `wanted` names: the head of its hash, or `here`.
std::string NeedMachine(const std::map<std::string, std::string>& machines,
                        const std::string& wanted, const std::string& where) {
  std::vector<std::string> found;
  const std::string head = wanted == kHere ? ContentHash(DescribeSystem()) : wanted;
  for (const auto& [hash, hardware] : machines) {
    if (hash.starts_with(head)) found.push_back(hash);
  }
  if (found.size() == 1) return found.front();
  SPARFUSE_THROW(kConfig, fmt::format("{} system of {} begins with \"{}\": expected one of{}",
                                      found.empty() ? "no" : "more than one", where, wanted,
                                      Listed(machines)));
}

// Where trials are: the store, or a bundle.
struct Source {
  std::string name;
  std::vector<TrialRow> rows;
  std::function<json(const TrialRow&)> outcome;
};

Source SourceOfStore(const Program& program) {
  const fs::path results = program.store().results();
  return {results.string(), program.Rows(), [results](const TrialRow& row) {
            const fs::path file = results / row.directory / "outcome.json";
            return SomethingIsAt(file) ? json::parse(ReadFile(file), nullptr, false) : json();
          }};
}

Source SourceOfBundle(const fs::path& file) {
  const auto bundle = std::make_shared<Bundle>(file);
  std::vector<std::string> problems;
  Source source{file.string(), RowsOf(*bundle, problems), [bundle](const TrialRow& row) {
                  const auto files = bundle->Trial(row.trial_id).files;
                  const auto found = files.find("outcome.json");
                  return found == files.end() ? json() : json::parse(found->second, nullptr, false);
                }};
  if (!problems.empty()) {
    SPARFUSE_THROW(kData, fmt::format("{}; `sparfuse verify` lists {} problem(s)", problems.front(),
                                      problems.size()));
  }
  SortByAge(source.rows);
  return source;
}

SystemSide SideOf(const Source& source, const std::string& machine, std::string name) {
  SystemSide side{std::move(name), MachinesOf(source.rows).at(machine), {}, source.outcome};
  for (const TrialRow& row : source.rows) {
    if (MachineOf(row) == machine) side.rows.push_back(row);
  }
  return side;
}

// "FILE.sparfuse", "FILE.sparfuse:HASH", the head of the hash of one of the store's systems, or
// `here`.
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
      const std::string machine = NeedMachine(MachinesOf(of_store().rows), each, of_store().name);
      sides.push_back(
          SideOf(of_store(), machine, each == kHere ? kHere : machine.substr(0, kShownHash)));
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
  for (std::size_t i = 0; i < sides.size(); ++i) {  // bundles of one name in two folders
    const auto before = std::count_if(sides.begin(), sides.begin() + static_cast<std::ptrdiff_t>(i),
                                      [&](const auto& side) { return side.name == sides[i].name; });
    if (before > 0) sides[i].name += fmt::format(" ({})", before + 1);
  }
  if (sides.size() < 2) {
    SPARFUSE_THROW(kConfig, fmt::format("expected two systems or more to compare: bundles, or of "
                                        "those in {}:{}",
                                        of_store().name, Listed(MachinesOf(of_store().rows))));
  }
  return sides;
}

// Says what each side has in the place of something in common.
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
  SPARFUSE_THROW(
      kConfig,
      fmt::format("two of these systems have no cell {}in common beside those of {}; their "
                  "experiments:{}",
                  request.experiments.empty()
                      ? ""
                      : fmt::format("of {} ", fmt::join(request.experiments, ", ")),
                  request.reference, text));
}

void PrintComparison(const SystemComparison& comparison, const std::vector<SystemSide>& sides,
                     const CompareRequest& request, const std::string& format) {
  const bool latex = format == "latex";
  for (const std::string& sentence : SummaryOf(comparison, sides, request))
    fmt::print("{}{}.\n", latex ? "% " : "", sentence);
  fmt::print("\n");
  for (const Table& table : TablesOf(comparison, sides, request))
    fmt::print("{}\n", Render(table, latex ? TableFormat::kLatex : TableFormat::kMarkdown));
  std::fflush(stdout);
}

}  // namespace

int CompareVerb(Program& program, const CompareVerbRequest& request) {
  const std::vector<SystemSide> sides = SidesOf(program, request.sides);
  CompareRequest asked = request.compare;
  asked.disturbed = program.disturbed();
  const SystemComparison comparison = CompareSystems(sides, asked);
  if (comparison.parts.empty()) FailWithNothing(sides, asked);
  const json numbers = ComparisonJson(comparison, sides, asked);
  if (program.json()) {
    PrintJson(numbers);
  } else if (request.format == "csv") {
    fmt::print("{}", ComparisonCsv(comparison, sides, asked));
  } else {
    PrintComparison(comparison, sides, asked, request.format);
  }
  if (request.figures.empty()) return kDone;
  MakeDirectories(request.figures);
  const std::filesystem::path file = request.figures / "comparison.json";
  WriteFileDurably(file, numbers.dump(1) + "\n");
  RenderFile(program, {"compare", "--data", file.string(), "--out", request.figures.string()},
             program.json() || request.format != "md");
  return kDone;
}

}  // namespace sparfuse::harness
