// Holds what many trials have in common once: JSON that is parsed when it is first looked at, and
// short names.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sparfuse::harness {

// A value of JSON whose copies share one text. Reads as a json; a copy that is changed is its own
// from then on. For one thread at a time.
class StoredJson {
 public:
  StoredJson() = default;  // null
  StoredJson(nlohmann::json value);
  StoredJson(nlohmann::json::initializer_list_t members) : StoredJson(nlohmann::json(members)) {}
  // Precondition: `text` is JSON.
  static StoredJson OfText(std::string text);

  const nlohmann::json& Value() const;
  operator const nlohmann::json&() const { return Value(); }
  // Canonical, or as it was given; as long as a copy of this lives.
  std::string_view Text() const;

  bool contains(const std::string& key) const { return Value().contains(key); }
  template <class T>
  auto value(const char* key, const T& otherwise) const {
    return Value().value(key, otherwise);
  }
  const nlohmann::json& operator[](const std::string& key) const { return Value().at(key); }
  nlohmann::json& operator[](const std::string& key);

  friend bool operator==(const StoredJson& a, const StoredJson& b) {
    return a.shared_ == b.shared_ || a.Value() == b.Value();
  }
  friend bool operator==(const StoredJson& a, const nlohmann::json& b) { return a.Value() == b; }

 private:
  struct Shared {
    std::string text;  // "": not made yet
    std::optional<nlohmann::json> value;
  };
  std::shared_ptr<Shared> shared_;
};

// The one copy of `name` that this process keeps; for names of which there are few.
std::string_view Interned(std::string_view name);

// A small map from such names, in one block of memory. Its names, and text as values, are Interned.
template <class Value>
class NamedValues {
 public:
  using Entry = std::pair<std::string_view, Value>;

  NamedValues() = default;
  NamedValues(std::initializer_list<Entry> entries) {
    for (const auto& [name, value] : entries) Set(name, value);
  }
  template <class Other>
  NamedValues(const std::map<std::string, Other>& entries) {
    for (const auto& [name, value] : entries) Set(name, value);
  }

  void Set(std::string_view name, Value value) {
    if constexpr (std::is_same_v<Value, std::string_view>) value = Interned(value);
    const auto at = std::lower_bound(
        entries_.begin(), entries_.end(), name,
        [](const Entry& entry, std::string_view wanted) { return entry.first < wanted; });
    if (at != entries_.end() && at->first == name) {
      at->second = value;
    } else {
      entries_.emplace(at, Interned(name), value);
    }
  }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  auto find(std::string_view name) const {
    return std::find_if(begin(), end(), [&](const Entry& entry) { return entry.first == name; });
  }
  const Value& at(std::string_view name) const {
    const auto found = find(name);
    if (found == end()) throw std::out_of_range(std::string(name));
    return found->second;
  }
  bool contains(std::string_view name) const { return find(name) != end(); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  friend bool operator==(const NamedValues&, const NamedValues&) = default;

 private:
  std::vector<Entry> entries_;  // by name
};

}  // namespace sparfuse::harness
