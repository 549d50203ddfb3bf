// Reads the log of others' training: lines by patterns, or a table of steps by its columns.
#pragma once

#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/imports/given_values.hpp"
#include "harness/imports/import_map.hpp"
#include "harness/imports/imported_result.hpp"

namespace sparfuse::harness {

// A regular expression of ECMAScript whose groups may have names, (?<name>...) or (?P<name>...).
class LinePattern {
 public:
  // Throws Error{kConfig} naming where it stands, for what is no regular expression, has no named
  // group, or one that is not in `known`.
  LinePattern(const GivenText& pattern, const std::vector<std::string>& known);

  const std::string& where() const noexcept { return where_; }
  // {name: what it matched} of the first match; empty where there is none. Lines of more than
  // kLongestLine characters do not match: the library's matching takes stack in proportion.
  std::map<std::string, std::string> Match(std::string_view line) const;

  static constexpr std::size_t kLongestLine = 4096;

 private:
  std::string where_;
  std::regex pattern_;
  std::vector<std::pair<std::size_t, std::string>> names_;  // of groups, which are counted from 1
};

// What the log shows: the throughput or, where neither rates nor the batch are known, the step time
// as the median over steps, as of our own trials; the last evaluation with the curve that led to
// it; or both. Throws Error{kConfig} with all that is wrong.
std::vector<ImportedResult> ReadTrainingLog(std::string_view text, const std::string& name,
                                            const ImportMap& map, const Catalog& catalog);

}  // namespace sparfuse::harness
