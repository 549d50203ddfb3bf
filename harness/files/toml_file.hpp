// Reads a TOML file as JSON and remembers the line of each value, so that every later check can
// name it.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "harness/files/range.hpp"

namespace sparfuse::harness {

class TomlFile {
 public:
  // Throws Error{kConfig} with file and line for text that is not TOML, and for dates and times,
  // which no key takes.
  static TomlFile Read(const std::filesystem::path& path);
  static TomlFile Parse(std::string_view text, std::string name);

  const std::string& name() const noexcept { return name_; }
  const nlohmann::json& root() const noexcept { return root_; }

  // The value at a JSON pointer ("/part/0/defaults/density"); null when absent.
  const nlohmann::json* Find(const std::string& pointer) const;

  // "file:line" of the value at `pointer`, or of the nearest enclosing one that is there.
  std::string Where(const std::string& pointer) const;

  // Throws Error{kConfig}: "file:line: message".
  [[noreturn]] void Fail(const std::string& pointer, std::string_view message) const;
  // "file:line: key = value: expected ..."
  [[noreturn]] void FailValue(const std::string& pointer, std::string_view expected) const;

  // Checks that every key of the table at `pointer` is in `known`; `what` names the table in the
  // error.
  void CheckKeys(const std::string& pointer, std::string_view what,
                 std::span<const std::string> known) const;

  // Typed members of the table at `pointer`. An absent member gives `fallback`. A member of another
  // type or out of range calls FailValue.
  std::string String(const std::string& pointer, const std::string& key,
                     const std::string& fallback) const;
  std::string RequiredString(const std::string& pointer, const std::string& key) const;
  std::int64_t Integer(const std::string& pointer, const std::string& key, std::int64_t fallback,
                       Range range) const;
  double Number(const std::string& pointer, const std::string& key, double fallback,
                Range range) const;
  bool Boolean(const std::string& pointer, const std::string& key, bool fallback) const;

 private:
  friend struct TomlConverter;
  std::string name_;
  nlohmann::json root_;
  std::map<std::string, int> lines_;  // by JSON pointer
};

// How a value is shown in an error: strings in quotes, others as JSON.
std::string Shown(const nlohmann::json& value);

}  // namespace sparfuse::harness
