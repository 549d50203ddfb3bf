// Declares what the readers of logs of links share: words and numbers of lines, and samples.
#pragma once

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

}  // namespace sparfuse::harness
