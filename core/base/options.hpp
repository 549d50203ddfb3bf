// Declares named, typed, documented options of a registered part, and checks a file's values for
// them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sparfuse {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;
using Options = std::map<std::string, OptionValue, std::less<>>;

// One option of a part. The type of `fallback` is the option's type.
struct OptionSpec {
  std::string name;
  OptionValue fallback;
  double min = 0;  // numeric options only: the closed range [min, max]; equal bounds mean no limit
  double max = 0;
  std::vector<std::string> choices = {};  // string options only; empty means any
  std::string meaning;                    // one sentence, with the unit
  bool or_outside = false;  // a part from outside (outside_parts.hpp) is also a choice
};
OptionSpec FlagOption(std::string name, bool fallback, std::string meaning);
OptionSpec WholeOption(std::string name, std::int64_t fallback, double min, double max,
                       std::string meaning);
OptionSpec NumberOption(std::string name, double fallback, double min, double max,
                        std::string meaning);
OptionSpec TextOption(std::string name, std::string fallback, std::string meaning);
OptionSpec ChoiceOption(std::string name, std::string fallback, std::vector<std::string> choices,
                        std::string meaning);

// Returns `given` completed with defaults. Integers are accepted for a double. Throws
// Error{kConfig} that names `owner` (say "sparsifier dgc"), the key, the value, the expected value
// and, for an unknown key, the nearest known one.
Options ResolveOptions(std::string_view owner, std::span<const OptionSpec> specs,
                       const Options& given);

// Preconditions: `options` came from ResolveOptions and has `name` with this type.
bool BoolOption(const Options& options, std::string_view name);
std::int64_t IntOption(const Options& options, std::string_view name);
double DoubleOption(const Options& options, std::string_view name);
const std::string& StringOption(const Options& options, std::string_view name);

std::string ToString(const OptionValue& value);

// The entry of `known` nearest to `name` by edit distance, or else the shortest that begins with
// it;
// "" if `name` is unlikely to mean any.
std::string NearestName(std::string_view name, std::span<const std::string> known);

// `; did you mean "x"?` if there is a near name, else `; known: a, b, c`.
std::string Suggestion(std::string_view name, std::span<const std::string> known);

}  // namespace sparfuse
