// The part that a test program was told to test, in the place of all that are registered.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace sparfuse::testing {

struct NamedPart {
  std::string kind;  // "planner", "strategy", ...
  std::string name;  // that FindPlanner and its like find; empty: all registered ones are tested
};

inline NamedPart& ThePart() {
  static NamedPart part;
  return part;
}

inline bool IsNamed(const std::string& kind) {
  return !ThePart().name.empty() && ThePart().kind == kind;
}

// As googletest takes names.
inline std::string InTestName(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace sparfuse::testing
