// Lays out an experiment's results as tables of text, for people; records.hpp has the numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/report/prediction.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct Table {
  std::string title;
  std::string caption;  // mode, hardware, blocks
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> notes;  // footnotes
};

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

// "1.31x [1.27, 1.35]", without the ends where one block leaves none; kNone for nothing.
std::string RatioText(const std::optional<Interval>& ratio);

// Three significant digits, thousands apart by thin spaces, seconds and bytes scaled: "12.3 ms".
std::string Quantity(double value, std::string_view unit);

}  // namespace sparfuse::harness
