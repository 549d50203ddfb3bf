// Reads tables and logs of others, doubts impossible numbers, and adds the rest to the store as
// trials of the mode "imported".
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/expression.hpp"
#include "harness/imports/given_values.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/imports/imported_result.hpp"
#include "harness/store/store.hpp"

namespace sparfuse::harness {

// How results stand to those that the store has: by system, source, configuration and run.
struct ImportPlan {
  std::vector<const ImportedResult*> add;
  std::size_t present = 0;           // with the same numbers
  std::vector<std::string> refused;  // with others: sentences
};

// rows: the store's. What was called bad is as good as not there.
ImportPlan PlanImport(std::span<const ImportedResult> results, const std::vector<TrialRow>& rows);

// Makes each a trial, whole or unfinished as in a run: after a kill the same import goes on.
// Returns the ids.
std::vector<std::string> AddImported(const Store& store, const StoreLock& lock,
                                     std::span<const ImportedResult* const> results);

// All rows, in the order of the file. A key stands in the column that the map names for it, else as
// the map's constant, else in a column of its own name. Throws Error{kConfig} with all that is
// wrong: what is missing, of another type, unknown, in no unit of its metric, or there twice.
// unread: gets the names of columns that nothing is read from; notes: what was left out.
std::vector<ImportedResult> ReadResultTable(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* unread = nullptr,
                                            std::vector<std::string>* notes = nullptr);

// A regular expression (core/base/expression.hpp) whose groups may have names, (?<name>...) or
// (?P<name>...), one several times.
class LinePattern {
 public:
  // Throws Error{kConfig} naming where it stands, for what is no regular expression, has no named
  // group, or one that is not in `known`.
  LinePattern(const GivenText& pattern, const std::vector<std::string>& known);

  // One that says which lines are meant, and needs no names.
  explicit LinePattern(const GivenText& pattern);

  const std::string& where() const noexcept { return where_; }
  bool Matches(std::string_view line) const;
  // Hands each name and what its group has of the first match to `use`, the last group first; false
  // where there is none.
  bool Find(std::string_view line,
            const std::function<void(const std::string& name, std::string_view value)>& use) const;
  // The same as {name: value}.
  std::map<std::string, std::string> Match(std::string_view line) const;

 private:
  std::string where_;
  Expression pattern_;
  std::vector<std::pair<std::size_t, std::string>> names_;  // of groups, which are counted from 1
};

// What the log shows: the throughput or, where neither rates nor the batch are known, the step time
// as the median over steps, as of our own trials; the last evaluation with the curve that led to
// it; or both. Throws Error{kConfig} with all that is wrong: also for steps that come again or go
// back, as those of several ranks or runs do, unless each comes as often, of which the median
// counts, or the map has steps_again. notes: gets what was taken off, left out and put together.
std::vector<ImportedResult> ReadTrainingLog(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* notes = nullptr);

// Adds to `doubts` what cannot be, and sets implied_gbps:
//
// * A throughput and a step time of one setting, whose batch is known, that contradict each other;
//   where they are as far apart as there are workers, one was taken for that of one worker or of
//   all.
// * A throughput that grows by 1.25 times more than the workers do: numbers of all workers taken
//   for those of one. One that does not grow at all with them: numbers of one taken for all.
// * Of dense all-reduces on several nodes with a label of the network's bandwidth: a step too short
//   for its bytes at that rate; where one worker's step of the same batch is there, too, what
//   communication adds to it and a rate of less than half of the label follows.
//
// Numbers of one number of workers alone, without a step time, can be of one worker or of all:
// nothing here finds out.
void Doubt(std::span<ImportedResult> results, const Catalog& catalog);

}  // namespace sparfuse::harness
