// Compares what machines say of the same experiments: `sparfuse compare`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "harness/cli/drawing.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/compare/comparison_table.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr std::size_t kShownHash = 12;
constexpr const char* kHere = "here";

// The machines whose trials the store has, with a line about each.
std::map<std::string, std::string> MachinesOf(const std::vector<TrialRow>& rows) {
  std::map<std::string, std::string> machines;
  for (const TrialRow& row : rows) {
    const std::string machine = MachineOf(row);
    if (!machine.empty() && row.kind != "profile") machines[machine] = HardwareLine(row.system);
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

SystemSide SideOfStore(const Program& program, const std::vector<TrialRow>& rows,
                       const std::string& wanted) {
  const auto machines = MachinesOf(rows);
  const std::string machine = NeedMachine(machines, wanted, program.store().results().string());
  SystemSide side{
      wanted == kHere ? kHere : machine.substr(0, kShownHash), machines.at(machine), {}, {}};
  for (const TrialRow& row : rows) {
    if (MachineOf(row) == machine) side.rows.push_back(row);
  }
  const std::filesystem::path results = program.store().results();
  side.outcome = [results](const TrialRow& row) {
    const auto file = results / row.directory / "outcome.json";
    return SomethingIsAt(file) ? json::parse(ReadFile(file), nullptr, false) : json();
  };
  return side;
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
  std::vector<SystemSide> sides;
  const std::vector<TrialRow> rows = program.Rows();
  for (const std::string& wanted : request.sides)
    sides.push_back(SideOfStore(program, rows, wanted));
  if (sides.size() < 2) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("expected two systems or more to compare; {} has{}",
                               program.store().results().string(), Listed(MachinesOf(rows))));
  }
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
