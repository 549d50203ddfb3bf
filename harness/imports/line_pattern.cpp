// Matches lines of logs with regular expressions whose groups have names.
#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/imports/imports.hpp"

namespace sparfuse::harness {

namespace {

struct Unnamed {
  std::string pattern;
  std::vector<std::pair<std::size_t, std::string>> names;
};

// Removes the names from the groups and counts the groups. RE2 has another syntax for names, and
// accepts each name only once.
Unnamed WithoutNames(std::string_view pattern) {
  Unnamed made;
  std::size_t groups = 0;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    made.pattern += c;
    if (c == '\\' && i + 1 < pattern.size()) {
      made.pattern += pattern[++i];
    } else if (in_class || c == '[') {
      in_class = c != ']';
    } else if (c == '(') {
      const std::string_view rest = pattern.substr(i + 1);
      const std::size_t open = rest.starts_with("?P<") ? 3 : rest.starts_with("?<") ? 2 : 0;
      if (open == 0) {
        groups += !rest.starts_with('?');
        continue;
      }
      ++groups;
      const std::size_t close = rest.find('>');
      if (close == std::string_view::npos) continue;  // the library reports the error
      made.names.emplace_back(groups, rest.substr(open, close - open));
      i += close + 1;
    }
  }
  return made;
}

}  // namespace

LinePattern::LinePattern(const GivenText& pattern)
    : where_(pattern.where),
      pattern_(WithoutNames(pattern.text).pattern, pattern.where + " = " + pattern.text),
      names_(WithoutNames(pattern.text).names) {}

LinePattern::LinePattern(const GivenText& pattern, const std::vector<std::string>& known)
    : LinePattern(pattern) {
  if (names_.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} = {}: expected a named group, as (?<seconds>...)",
                                        where_, pattern.text));
  }
  for (const auto& [group, name] : names_) {
    if (std::ranges::find(known, name) == known.end()) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: unknown group \"{}\"{}", where_, name,
                                          Suggestion(name, known)));
    }
  }
}

bool LinePattern::Matches(std::string_view line) const { return pattern_.FoundIn(line); }

bool LinePattern::Find(
    std::string_view line,
    const std::function<void(const std::string& name, std::string_view value)>& use) const {
  std::vector<std::string_view> found;
  if (!pattern_.Find(line, found)) return false;
  bool any = false;
  for (const auto& [group, name] : std::views::reverse(names_)) {
    if (found[group].data() == nullptr) continue;
    any = true;
    use(name, found[group]);
  }
  return any;
}

std::map<std::string, std::string> LinePattern::Match(std::string_view line) const {
  std::map<std::string, std::string> values;
  Find(line,
       [&](const std::string& name, std::string_view value) { values.try_emplace(name, value); });
  return values;
}

}  // namespace sparfuse::harness
