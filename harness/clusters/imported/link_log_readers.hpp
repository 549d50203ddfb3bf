// Declares what the readers of logs of links share: words and numbers of lines, samples, and the
// rows of nccl-tests and rccl-tests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/clusters/imported/imported_links.hpp"
#include "harness/files/log_text.hpp"

namespace sparfuse::harness {

// Parts between white space.
std::vector<std::string_view> WordsOf(std::string_view text);

// Throws Error{kConfig}: "file:line: message"; without a line where that is 0.
[[noreturn]] void FailAt(const std::string& file, int line, std::string_view message);

// A finite number of at least 0; `what` names the column.
double NumberAt(const std::string& file, const LogLine& line, std::string_view word,
                std::string_view what);

// Adds a sample that a [[curve]] may have: of whole bytes, more than those before.
void AddSample(const std::string& file, int line, LinkSample sample, LinkLog& log);

// What the log says (0: nothing) or was asked of the user; they must agree.
int SaidOrAsked(const std::string& file, const LinkLog& log, const char* option, int said,
                int asked);

// The row of a size, out of place. Rates are as printed: 10^9 bytes a second.
struct NcclTestsRow {
  double bytes = 0, seconds = 0, algorithm_gbytes = 0, bus_gbytes = 0;
  std::optional<double> wrong;  // elements; nothing: not compared (-c 0)
};

// Sets the operation from the program's name ("all_reduce_perf_mpi"), or from `asked` if the log
// does not name it. Throws Error{kConfig} for other programs.
void SetOperation(const std::string& file, std::string_view program, const AskedOfLog& asked,
                  LinkLog& log);

// Adds the row to a log whose ranks are known. `where`: line 0 and a key of JSON, or a line. Throws
// Error{kConfig} for wrong results and for rates that are not size over time.
void AddRow(const std::string& file, int line, const std::string& where, const NcclTestsRow& row,
            LinkLog& log);

// Whether the lines are a file that rccl-tests itself writes (-x), as CSV or JSON (-Z).
bool IsOfRcclTests(const LogText& log);
// Reads it; `text`: the whole file.
LinkLog ReadRcclTests(const LogText& log, std::string_view text, const std::string& file,
                      const AskedOfLog& asked);

}  // namespace sparfuse::harness
