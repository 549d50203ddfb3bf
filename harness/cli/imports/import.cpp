// Takes imported results into the store: `sparfuse import`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/verbs.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/log_text.hpp"
#include "harness/files/plain_text.hpp"
#include "harness/imports/imports.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::vector<ImportedResult> ResultsIn(Program& program, const ImportRequest& request) {
  std::vector<std::string> unread, notes;
  const ImportMap map = ReadImportMap(request.map, request.form);
  const std::string name = request.file.string();
  const std::string text = ReadFile(request.file);
  auto results = request.form == ImportForm::kTable
                     ? ReadResultTable(text, name, map, program.catalog(), &unread, &notes)
                     : ReadTrainingLog(text, name, map, program.catalog(), &notes);
  if (!unread.empty()) {
    constexpr std::size_t kMostNamed = 20;
    const std::size_t named = std::min(unread.size(), kMostNamed), more = unread.size() - named;
    unread.resize(named);
    for (std::string& column : unread)
      column = fmt::format("\"{}\"", column);  // a column may have no name
    notes.push_back(fmt::format("columns not read: {}{}", fmt::join(unread, ", "),
                                more > 0 ? fmt::format(" and {} more", more) : ""));
  }
  for (const std::string& note : notes)
    fmt::print(stderr, "note: {}: {}\n", Visible(name), Visible(note));
  const std::string sha256 = Sha256Hex(text);
  for (ImportedResult& result : results) {
    result.file = AsUtf8(request.file.filename().string());
    result.sha256 = sha256;
  }
  Doubt(results, program.catalog());
  return results;
}

// Prints the imported results as reports will show them.
void PrintResults(const std::vector<ImportedResult>& results) {
  std::vector<TrialRow> rows;
  for (const ImportedResult& result : results) rows.push_back(RowOf(TrialOf(result)));
  fmt::print("{}\n",
             Render(ImportedTable("Imported", ImportedCells(rows)), TableFormat::kMarkdown));
}

json SummaryJson(const std::vector<ImportedResult>& results, const ImportPlan& plan,
                 const std::vector<std::string>& doubts, const std::vector<std::string>& added) {
  json list = json::array();
  for (const ImportedResult& result : results) {
    const Trial trial = TrialOf(result);
    list.push_back({{"where", result.where},
                    {"config", trial.config},
                    {"system", ToJson(trial.system)},
                    {"run", result.setting.run},
                    {"metrics", ToJson(trial.metrics)},
                    {"imported", ToJson(*trial.imported)}});
  }
  return {{"results", list},
          {"added", added},
          {"present", plan.present},
          {"refused", plan.refused},
          {"implausible", doubts}};
}

}  // namespace

int ImportVerb(Program& program, const ImportRequest& request) {
  const std::vector<ImportedResult> results = ResultsIn(program, request);
  std::vector<std::string> doubts;
  for (const ImportedResult& result : results) {
    for (const std::string& doubt : result.doubts)
      doubts.push_back(fmt::format("{}: {}: {}", result.where, TitleOf(result), doubt));
  }
  const Store& store = program.store();
  std::unique_ptr<StoreLock> lock;
  std::vector<TrialRow> rows;
  if (request.dry_run) {
    rows = program.Rows();
  } else {
    MakeDirectories(store.results());
    lock = std::make_unique<StoreLock>(store.results());
    std::vector<std::string> problems;
    rows = store.OpenIndex(*lock, problems).Rows();
    for (const std::string& problem : problems) fmt::print(stderr, "warning: {}\n", problem);
  }
  const ImportPlan plan = PlanImport(results, rows);
  for (const std::string& why : plan.refused) fmt::print(stderr, "refused: {}\n", why);
  for (const std::string& doubt : doubts)
    fmt::print(stderr, "{}: {}\n", request.keep_implausible ? "doubtful" : "implausible", doubt);
  const bool refused = !plan.refused.empty() || (!doubts.empty() && !request.keep_implausible);
  std::vector<std::string> added;
  if (!refused && !request.dry_run) {
    added = AddImported(store, *lock, plan.add);
    std::vector<std::string> problems;
    store.OpenIndex(*lock, problems);
  }
  if (program.json()) {
    PrintJson(SummaryJson(results, plan, doubts, added));
  } else {
    if (!refused) PrintResults(results);
    fmt::print("{}: {} result(s) {}, {} already here\n", request.file.string(),
               refused ? 0 : plan.add.size(), request.dry_run ? "would be imported" : "imported",
               plan.present);
  }
  if (!refused) return kDone;
  fmt::print(stderr, "nothing was imported{}\n",
             plan.refused.empty() ? "; --keep-implausible imports each number with its doubt" : "");
  return kTrialFailed;
}

int ImportListVerb(Program& program) {
  const std::vector<TrialRow> rows = program.Rows();
  const std::vector<ImportedCell> cells = ImportedCells(rows);
  if (program.json()) {
    PrintJson(ImportedJson(cells));
  } else if (cells.empty()) {
    fmt::print("nothing was imported into {}\n", program.store().results().string());
  } else {
    fmt::print("{}\n", Render(ImportedTable("Imported", cells), TableFormat::kMarkdown));
  }
  return kDone;
}

}  // namespace sparfuse::harness
