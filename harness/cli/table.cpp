// Prints results as text or as numbers: `sparfuse table`.
#include "harness/report/tables/table.hpp"

#include <fmt/format.h>

#include "harness/cli/verbs.hpp"
#include "harness/report/disturbed.hpp"
#include "harness/report/spec.hpp"
#include "harness/report/tables/records.hpp"

namespace sparfuse::harness {

void PrintTables(Program& program, const LoadedExperiment& loaded, TableFormat format) {
  if (const std::string warning = DisturbedWarning(loaded.results); !warning.empty())
    fmt::print("{}{}\n\n", format == TableFormat::kLatex ? "% " : "**Warning:** ", warning);
  for (const auto& table : TablesOf(loaded.parts, loaded.results, program.catalog())) {
    fmt::print("{}\n", Render(table, format));
  }
}

int TableVerb(Program& program, const std::string& name, const std::string& format) {
  const auto loaded = program.LoadWithResults(name);
  if (program.json() || format == "csv") {
    const auto records = RecordsOf(loaded->parts, loaded->results, program.catalog());
    if (program.json()) {
      PrintJson(RecordsJson(records));
    } else {
      fmt::print("{}", RecordsCsv(records));
    }
    if (const std::string warning = DisturbedWarning(loaded->results); !warning.empty())
      fmt::print(stderr, "warning: {}\n", warning);
    return kDone;
  }
  PrintTables(program, *loaded, format == "latex" ? TableFormat::kLatex : TableFormat::kMarkdown);
  return kDone;
}

}  // namespace sparfuse::harness
