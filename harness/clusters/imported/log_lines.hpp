// Goes through the lines of a log, and names them in errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/clusters/imported/link_log.hpp"

namespace sparfuse::harness {

struct LogLine {
  int number = 0;  // from 1
  std::string_view text;
};

// Without line ends and without mpirun's tags ("[1,0]<stdout>:"); empty ones are left out.
std::vector<LogLine> LinesOf(std::string_view text);

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

}  // namespace sparfuse::harness
