// Runs a convergence proof in numbers, statement by statement: `sparfuse prove`.
#include <fmt/format.h>

#include <algorithm>

#include "core/adtopk/proofs/proofs.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

using nlohmann::json;

int ProveVerb(Program& program, const std::string& method) {
  const std::vector<ProofRow> rows = ProveAdTopK();
  json list = json::array();
  bool all = true;
  for (const ProofRow& row : rows) {
    all = all && row.holds;
    list.push_back({{"check", row.check},
                    {"statement", row.statement},
                    {"source", row.source},
                    {"measured", row.measured},
                    {"relation", RelationSign(row.relation)},
                    {"bound", row.bound},
                    {"holds", row.holds}});
    if (program.json()) continue;
    fmt::print("{:4} {:9} {:>12.5g} {:2} {:<12.5g} {}  [{}]\n", row.check,
               row.holds ? "holds" : "DOES NOT", row.measured, RelationSign(row.relation),
               row.bound, row.statement, row.source);
  }
  if (program.json()) PrintJson(list);
  if (!program.json()) {
    fmt::print("{}: {} of {} statements hold\n", method,
               std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.holds; }),
               rows.size());
  }
  return all ? kDone : kClaimNotReproduced;
}

}  // namespace sparfuse::harness
