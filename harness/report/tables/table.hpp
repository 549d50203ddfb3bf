// Lays out an experiment's results as tables of text, for people; records.hpp has the numbers.
#pragma once

#include <string>

#include "harness/records/table.hpp"
#include "harness/report/prediction.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

enum class TableFormat { kMarkdown, kLatex };

// A row has the keys that tell its cell apart (columns.hpp); excluded cells show en dashes, with
// their reason below.
Table ResultTable(const PartResult& result, const Catalog& catalog);
Table ClaimTable(const PartResult& result);
Table PredictionTable(const Part& part, const PredictionSummary& summary);

// A claim in the words of tables and reports.
struct ClaimWords {
  std::string expected;  // "1.874x", "difference > 0"
  std::string ours;      // "1.31x [1.27, 1.35]"
  std::string verdict;   // "holds, preliminary"
};
ClaimWords WordsOf(const ClaimResult& judged);
const char* ComparisonSign(Comparison comparison);  // "<="

std::string Render(const Table& table, TableFormat format);

}  // namespace sparfuse::harness
