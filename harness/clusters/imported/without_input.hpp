// Takes an input out of a cluster's file, in whatever form of TOML it stands there.
#pragma once

#include <string>

namespace sparfuse::harness {

// `text` with the lines of `[input] NAME` made comments: of a line, of several, of dotted keys or
// of a table of its own. What stands within an inline table of all inputs stays.
std::string WithoutInput(const std::string& text, const std::string& name);

}  // namespace sparfuse::harness
