// Holds the part that a test program was told to test instead of all registered ones.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

namespace sparfuse::testing {

struct NamedPart {
  std::string kind;  // "planner", "strategy", ...
  std::string name;  // its name; empty: all registered parts are tested
};

inline NamedPart& ThePart() {
  static NamedPart part;
  return part;
}

inline bool IsNamed(const std::string& kind) {
  return !ThePart().name.empty() && ThePart().kind == kind;
}

// The name in the form that googletest accepts.
inline std::string InTestName(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

}  // namespace sparfuse::testing
