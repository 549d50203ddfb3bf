// Removes an input from a cluster's file, in each form that TOML allows.
#pragma once

#include <string>

namespace sparfuse::harness {

// Turns the lines of `[input] NAME` in `text` into comments: one line, several, dotted keys, or a
// table of its own. Keys within an inline table of all inputs stay.
std::string WithoutInput(const std::string& text, const std::string& name);

}  // namespace sparfuse::harness
