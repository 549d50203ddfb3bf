// Prints results as text: `sparfuse table`.
#include "harness/report/table.hpp"

#include <fmt/format.h>

#include "harness/cli/verbs.hpp"
#include "harness/report/spec.hpp"

namespace sparfuse::harness {

using nlohmann::json;

int TableVerb(Program& program, const std::string& name, TableFormat format) {
  const auto loaded = program.LoadWithResults(name);
  const auto tables = TablesOf(loaded->parts, loaded->results, program.catalog());
  if (program.json()) {
    json list = json::array();
    for (const auto& table : tables) list.push_back(TableJson(table));
    PrintJson(list);
    return kDone;
  }
  for (const auto& table : tables) fmt::print("{}\n", Render(table, format));
  return kDone;
}

}  // namespace sparfuse::harness
