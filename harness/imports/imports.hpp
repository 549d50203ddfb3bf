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

// Compares results with the store's by system, source, configuration and run.
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

// Reads all rows, in the order of the file. The value of a key is in the column that the map names,
// else it is the map's constant, else it is in the column of the key's own name. Throws
// Error{kConfig} with all problems: missing values, other types, unknown names, units that do not
// fit the metric, duplicates. unread: gets the names of columns that were not read; notes: the
// parts that were left out.
std::vector<ImportedResult> ReadResultTable(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* unread = nullptr,
                                            std::vector<std::string>* notes = nullptr);

// A regular expression (core/base/expression.hpp) whose groups may have names, (?<name>...) or
// (?P<name>...). Several groups may have the same name.
class LinePattern {
 public:
  // Throws Error{kConfig} naming the place of the pattern if it is not a regular expression, has no
  // named group, or has one that is not in `known`.
  LinePattern(const GivenText& pattern, const std::vector<std::string>& known);

  // One that says which lines are meant, and needs no names.
  explicit LinePattern(const GivenText& pattern);

  const std::string& where() const noexcept { return where_; }
  bool Matches(std::string_view line) const;
  // Calls `use` with each name and the text of its group in the first match, the last group first.
  // False if there is no match.
  bool Find(std::string_view line,
            const std::function<void(const std::string& name, std::string_view value)>& use) const;
  // The same as {name: value}.
  std::map<std::string, std::string> Match(std::string_view line) const;

 private:
  std::string where_;
  Expression pattern_;
  std::vector<std::pair<std::size_t, std::string>> names_;  // of groups, which are counted from 1
};

// Reads the results of a log. They are the throughput, or the step time if neither rates nor the
// batch are known, as the median over steps like in our own trials; the last evaluation with its
// curve; or both. Throws Error{kConfig} with all problems, also if steps repeat or go back, which
// happens if several ranks or runs wrote one log. Repeated steps are allowed if each comes equally
// often, and then their median counts, or if the map has steps_again. notes: gets the text that was
// removed, left out and joined.
std::vector<ImportedResult> ReadTrainingLog(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog,
                                            std::vector<std::string>* notes = nullptr);

// Adds results that cannot be true to `doubts`, and sets implied_gbps:
//
// * The throughput and the step time of one setting contradict each other, and its batch is known.
// If they differ by the number of workers, one of them was mistaken for the value of one worker or
// of all.
// * The throughput grows by more than 1.25 times the growth of workers: numbers of all workers were
// taken for numbers of one. Or it does not grow with workers at all: numbers of one were taken for
// all.
// * The step of a dense all-reduce on several nodes is too short for its bytes at the rate of the
// network's label. If the step of one worker with the same batch is there, too, the added
// communication gives a rate, and less than half of the label is doubtful.
//
// Numbers from one number of workers alone, without a step time, can be of one worker or of all;
// nothing here decides that.
void Doubt(std::span<ImportedResult> results, const Catalog& catalog);

}  // namespace sparfuse::harness
