#include "harness/files/toml_file.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/plain_text.hpp"

namespace sparfuse::harness {

// Fills a TomlFile from toml++'s tree.
struct TomlConverter {
  TomlFile& file;

  nlohmann::json Convert(const toml::node& node, const std::string& pointer) {
    file.lines_[pointer] = static_cast<int>(node.source().begin.line);
    if (const auto* table = node.as_table()) {
      nlohmann::json out = nlohmann::json::object();
      for (const auto& [key, value] : *table) {
        const std::string child = pointer + "/" + std::string(key.str());
        out[std::string(key.str())] = Convert(value, child);
        // A reader looks for a misspelling in the key's own line.
        if (!value.is_array_of_tables())
          file.lines_[child] = static_cast<int>(key.source().begin.line);
      }
      return out;
    }
    if (const auto* array = node.as_array()) {
      nlohmann::json out = nlohmann::json::array();
      for (std::size_t i = 0; i < array->size(); ++i) {
        out.push_back(Convert(*array->get(i), pointer + "/" + std::to_string(i)));
      }
      return out;
    }
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* integer = node.as_integer()) return integer->get();
    if (const auto* boolean = node.as_boolean()) return boolean->get();
    if (const auto* number = node.as_floating_point()) {
      if (!std::isfinite(number->get())) {
        file.Fail(pointer, fmt::format("{} = {}: expected a finite number", pointer.substr(1),
                                       number->get()));
      }
      return number->get();
    }
    file.Fail(pointer, fmt::format("{}: no key here is a date or a time", pointer.substr(1)));
  }
};

namespace {

std::string LastKey(const std::string& pointer) {
  std::string rest = pointer;
  while (!rest.empty()) {
    const auto slash = rest.rfind('/');
    const std::string key = rest.substr(slash + 1);
    if (!std::ranges::all_of(key, [](unsigned char c) { return std::isdigit(c); })) {
      return key;
    }
    rest.resize(slash);
  }
  return "value";
}

}  // namespace

std::string Shown(const nlohmann::json& value) {
  return Visible(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

TomlFile TomlFile::Read(const std::filesystem::path& path) {
  std::string text;
  try {
    text = ReadFile(path);
  } catch (const Error& error) {
    SPARFUSE_THROW(kConfig, error.what());
  }
  return Parse(text, path.string());
}

TomlFile TomlFile::Parse(std::string_view text, std::string name) {
  TomlFile file;
  file.name_ = std::move(name);
  try {
    const toml::table table = toml::parse(text, std::string_view(file.name_));
    file.root_ = TomlConverter{file}.Convert(table, "");
  } catch (const toml::parse_error& error) {
    SPARFUSE_THROW(kConfig, fmt::format("{}:{}: not valid TOML: {}", file.name_,
                                        error.source().begin.line, error.description()));
  }
  return file;
}

const nlohmann::json* TomlFile::Find(const std::string& pointer) const {
  const nlohmann::json::json_pointer where(pointer);
  return root_.contains(where) ? &root_.at(where) : nullptr;
}

std::string TomlFile::Where(const std::string& pointer) const {
  std::string at = pointer;
  while (true) {
    if (const auto line = lines_.find(at); line != lines_.end()) {
      return name_ + ":" + std::to_string(std::max(1, line->second));
    }
    if (at.empty()) return name_ + ":1";
    at.resize(at.rfind('/'));
  }
}

void TomlFile::Fail(const std::string& pointer, std::string_view message) const {
  SPARFUSE_THROW(kConfig, fmt::format("{}: {}", Where(pointer), message));
}

void TomlFile::FailValue(const std::string& pointer, std::string_view expected) const {
  const auto* value = Find(pointer);
  Fail(pointer, fmt::format("{} = {}: expected {}", LastKey(pointer),
                            value ? Shown(*value) : "nothing", expected));
}

void TomlFile::CheckKeys(const std::string& pointer, std::string_view what,
                         std::span<const std::string> known) const {
  const auto* table = Find(pointer);
  if (table == nullptr) return;
  if (!table->is_object()) FailValue(pointer, "a table");
  for (const auto& [key, value] : table->items()) {
    if (std::ranges::find(known, key) == known.end()) {
      Fail(pointer + "/" + key, fmt::format("{}: unknown key \"{}\" = {}{}", what, key,
                                            Shown(value), Suggestion(key, known)));
    }
  }
}

std::string TomlFile::String(const std::string& pointer, const std::string& key,
                             const std::string& fallback) const {
  const auto* value = Find(pointer + "/" + key);
  if (value == nullptr) return fallback;
  if (!value->is_string() || value->get<std::string>().empty()) {
    FailValue(pointer + "/" + key, "a string that is not empty");
  }
  return value->get<std::string>();
}

std::string TomlFile::RequiredString(const std::string& pointer, const std::string& key) const {
  if (Find(pointer + "/" + key) == nullptr) {
    Fail(pointer, fmt::format("the key \"{}\" is missing: expected a string", key));
  }
  return String(pointer, key, "");
}

std::int64_t TomlFile::Integer(const std::string& pointer, const std::string& key,
                               std::int64_t fallback, Range range) const {
  const auto* value = Find(pointer + "/" + key);
  if (value == nullptr) return fallback;
  const std::string expected = WhatIsWrongWithInteger(*value, range);
  if (!expected.empty()) FailValue(pointer + "/" + key, expected);
  return value->get<std::int64_t>();
}

double TomlFile::Number(const std::string& pointer, const std::string& key, double fallback,
                        Range range) const {
  const auto* value = Find(pointer + "/" + key);
  if (value == nullptr) return fallback;
  const std::string expected = WhatIsWrongWithNumber(*value, range);
  if (!expected.empty()) FailValue(pointer + "/" + key, expected);
  return value->get<double>();
}

bool TomlFile::Boolean(const std::string& pointer, const std::string& key, bool fallback) const {
  const auto* value = Find(pointer + "/" + key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) FailValue(pointer + "/" + key, "true or false");
  return value->get<bool>();
}

}  // namespace sparfuse::harness
