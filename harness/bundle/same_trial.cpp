#include "harness/bundle/same_trial.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

bool IsOfWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

// The next word of `text`, or what stands before it, which is taken off.
std::string_view Take(std::string_view& text) {
  if (text.empty()) return {};
  const bool word = IsOfWord(text.front());
  std::size_t end = 0;
  while (end < text.size() && IsOfWord(text[end]) == word) ++end;
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

bool StandsForAName(std::string_view word) {
  return word.find("HOST") != std::string_view::npos || word.find("USER") != std::string_view::npos;
}

bool SameText(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    const std::string_view ours = Take(a), other = Take(b);
    if (ours != other && !StandsForAName(ours) && !StandsForAName(other)) return false;
  }
  return a.empty() && b.empty();
}

// The first list cut data after 300 bytes, and what is left of a character there.
bool IsCutOf(std::string_view text, std::string_view whole) {
  return text.size() > 296 && text.size() <= 300 && whole.starts_with(text);
}

bool Same(const json& here, const json& there, bool one_list) {
  if (here.is_string() && there.is_string()) {
    const auto& ours = here.get_ref<const std::string&>();
    const auto& other = there.get_ref<const std::string&>();
    return SameText(ours, other) || (!one_list && (IsCutOf(ours, other) || IsCutOf(other, ours)));
  }
  if (here.is_array() && there.is_array()) {
    return std::ranges::equal(here, there, [&](const json& ours, const json& other) {
      return Same(ours, other, one_list);
    });
  }
  if (!here.is_object() || !there.is_object())
    return here == there || (!one_list && here.is_null());
  if (one_list && here.size() != there.size()) return false;
  return std::ranges::all_of(here.items(), [&](const auto& entry) {
    const auto other = there.find(entry.key());
    return other == there.end() ? !one_list : Same(entry.value(), *other, one_list);
  });
}

// Without which list it was, and without where a number of others was read: the same stands in
// unlike files.
json WithoutList(json value) {
  value.erase("redaction");
  const auto imported = value.find("imported");
  if (imported != value.end() && imported->is_object()) {
    for (const char* key : {"file", "sha256", "stated", "doubt"}) imported->erase(key);
  }
  return value;
}

bool IsOneList(const json& here, const json& there) {
  return here.value("redaction", json()) == there.value("redaction", json());
}

}  // namespace

std::string WhatDiffers(const BundledTrial& here, const BundledTrial& there) {
  const bool one_list = IsOneList(here.trial, there.trial);
  if (one_list && here.files.size() != there.files.size()) return "its number of files";
  for (const auto& [file, content] : there.files) {
    const auto found = here.files.find(file);
    if (found == here.files.end()) {
      if (one_list) return file;
      continue;
    }
    if (found->second == content) continue;
    if (!file.ends_with(".json")) return file;
    json ours = WithoutList(json::parse(found->second)), other = WithoutList(json::parse(content));
    if (!one_list && file == "trial.json") {  // of the files that left
      for (json* each : {&ours, &other}) {
        each->erase("files");
        each->erase("series");
      }
    }
    if (!Same(ours, other, one_list)) return file;
  }
  return "";
}

bool AreOneAnnotation(const json& here, const json& there) {
  return Same(WithoutList(here), WithoutList(there), IsOneList(here, there));
}

}  // namespace sparfuse::harness
