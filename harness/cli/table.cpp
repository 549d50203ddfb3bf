// Prints results as text or as numbers: `sparfuse table`.
#include "harness/report/tables/table.hpp"

#include <fmt/format.h>

#include "harness/cli/verbs.hpp"
#include "harness/report/spec.hpp"
#include "harness/report/tables/records.hpp"

namespace sparfuse::harness {

int TableVerb(Program& program, const std::string& name, const std::string& format) {
  const auto loaded = program.LoadWithResults(name);
  if (program.json() || format == "csv") {
    const auto records = RecordsOf(loaded->parts, loaded->results, program.catalog());
    if (program.json()) {
      PrintJson(RecordsJson(records));
    } else {
      fmt::print("{}", RecordsCsv(records));
    }
    return kDone;
  }
  const TableFormat layout = format == "latex" ? TableFormat::kLatex : TableFormat::kMarkdown;
  for (const auto& table : TablesOf(loaded->parts, loaded->results, program.catalog())) {
    fmt::print("{}\n", Render(table, layout));
  }
  return kDone;
}

}  // namespace sparfuse::harness
