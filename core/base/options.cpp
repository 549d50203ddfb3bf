#include "core/base/options.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/outside_parts.hpp"

namespace sparfuse {
namespace {

const char* TypeName(const OptionValue& value) {
  static constexpr const char* kNames[] = {"true or false", "an integer", "a number", "a string"};
  return kNames[value.index()];
}

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The shortest known name that begins with `name`; "" if there is none, or if `name` is short.
std::string Completed(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kLeast = 4;  // fewer letters say too little
  std::string shortest;
  if (name.size() < kLeast) return shortest;
  for (const auto& candidate : known) {
    if (!candidate.starts_with(name)) continue;
    if (shortest.empty() || candidate.size() < shortest.size()) shortest = candidate;
  }
  return shortest;
}

template <class T>
const T& Get(const Options& options, std::string_view name) {
  const auto it = options.find(name);
  if (it == options.end() || !std::holds_alternative<T>(it->second)) {
    SPARFUSE_THROW(kInternal, "option '", name, "' was not resolved");
  }
  return std::get<T>(it->second);
}

void CheckRange(const std::string& where, const OptionSpec& spec, double value) {
  if (spec.min == spec.max) return;
  if (value >= spec.min && value <= spec.max) return;  // false for NaN
  std::ostringstream text;
  text << where << " = " << value << ": expected a number in [" << spec.min << ", " << spec.max
       << "]";
  SPARFUSE_THROW(kConfig, text.str());
}

}  // namespace

OptionSpec FlagOption(std::string name, bool fallback, std::string meaning) {
  return {std::move(name), fallback, 0, 0, {}, std::move(meaning)};
}
OptionSpec WholeOption(std::string name, std::int64_t fallback, double min, double max,
                       std::string meaning) {
  return {std::move(name), fallback, min, max, {}, std::move(meaning)};
}
OptionSpec NumberOption(std::string name, double fallback, double min, double max,
                        std::string meaning) {
  return {std::move(name), fallback, min, max, {}, std::move(meaning)};
}
OptionSpec TextOption(std::string name, std::string fallback, std::string meaning) {
  return {std::move(name), std::move(fallback), 0, 0, {}, std::move(meaning)};
}
OptionSpec ChoiceOption(std::string name, std::string fallback, std::vector<std::string> choices,
                        std::string meaning) {
  return {std::move(name), std::move(fallback), 0, 0, std::move(choices), std::move(meaning)};
}

std::string ToString(const OptionValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<std::int64_t>(&value)) return std::to_string(*i);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  std::ostringstream text;
  text << std::get<double>(value);
  return text.str();
}

std::string NearestName(std::string_view name, std::span<const std::string> known) {
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  std::string nearest;
  for (const auto& candidate : known) {
    const std::size_t distance = EditDistance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? Completed(name, known) : nearest;
}

std::string Suggestion(std::string_view name, std::span<const std::string> known) {
  const std::string nearest = NearestName(name, known);
  if (!nearest.empty()) return "; did you mean \"" + nearest + "\"?";
  if (known.empty()) return "; it takes none";
  constexpr std::size_t kShown = 40;  // more would bury the message
  std::string text = "; known:";
  const std::size_t shown = std::min(kShown, known.size());
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? " " : ", ") + known[i];
  if (shown < known.size()) text += Concat(" and ", known.size() - shown, " more");
  return text;
}

Options ResolveOptions(std::string_view owner, std::span<const OptionSpec> specs,
                       const Options& given) {
  Options resolved;
  for (const auto& spec : specs) resolved[spec.name] = spec.fallback;
  for (const auto& [key, value] : given) {
    const auto spec = std::ranges::find(specs, key, &OptionSpec::name);
    if (spec == specs.end()) {
      std::vector<std::string> known;
      for (const auto& s : specs) known.push_back(s.name);
      SPARFUSE_THROW(kConfig, owner, ": unknown option \"", key, "\"", Suggestion(key, known));
    }
    const std::string where = std::string(owner) + ": " + key;
    OptionValue accepted = value;
    if (std::holds_alternative<double>(spec->fallback) &&
        std::holds_alternative<std::int64_t>(value)) {
      accepted = static_cast<double>(std::get<std::int64_t>(value));
    }
    if (accepted.index() != spec->fallback.index()) {
      SPARFUSE_THROW(kConfig, where, " = ", ToString(value), ": expected ",
                     TypeName(spec->fallback));
    }
    if (const auto* d = std::get_if<double>(&accepted)) CheckRange(where, *spec, *d);
    if (const auto* i = std::get_if<std::int64_t>(&accepted)) {
      CheckRange(where, *spec, static_cast<double>(*i));
    }
    const auto* s = std::get_if<std::string>(&accepted);
    if (s && !spec->choices.empty() && !(spec->or_outside && IsOutsidePart(*s))) {
      if (std::ranges::find(spec->choices, *s) == spec->choices.end()) {
        SPARFUSE_THROW(kConfig, where, " = \"", *s, "\"", Suggestion(*s, spec->choices));
      }
    }
    resolved[key] = accepted;
  }
  return resolved;
}

bool BoolOption(const Options& options, std::string_view name) { return Get<bool>(options, name); }
std::int64_t IntOption(const Options& options, std::string_view name) {
  return Get<std::int64_t>(options, name);
}
double DoubleOption(const Options& options, std::string_view name) {
  return Get<double>(options, name);
}
const std::string& StringOption(const Options& options, std::string_view name) {
  return Get<std::string>(options, name);
}

}  // namespace sparfuse
