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

bool Same(const json& here, const json& there) {
  if (here.is_string() && there.is_string())
    return SameText(here.get_ref<const std::string&>(), there.get_ref<const std::string&>());
  if (here.type() != there.type() || here.size() != there.size() || !here.is_structured())
    return here == there;
  if (here.is_array()) return std::ranges::equal(here, there, Same);
  return std::ranges::all_of(here.items(), [&](const auto& entry) {
    const auto other = there.find(entry.key());
    return other != there.end() && Same(entry.value(), *other);
  });
}

// Without where a number of others was read: the same stands in unlike files.
json WithoutSource(json value) {
  if (const auto imported = value.find("imported");
      imported != value.end() && imported->is_object()) {
    for (const char* key : {"file", "sha256", "stated", "doubt"}) imported->erase(key);
  }
  return value;
}

}  // namespace

std::string WhatDiffers(const BundledTrial& here, const BundledTrial& there) {
  if (here.files.size() != there.files.size()) return "its number of files";
  for (const auto& [file, content] : there.files) {
    const auto found = here.files.find(file);
    if (found == here.files.end()) return file;
    if (found->second == content) continue;
    if (!file.ends_with(".json")) return file;
    if (!Same(WithoutSource(json::parse(found->second)), WithoutSource(json::parse(content))))
      return file;
  }
  return "";
}

bool AreOneAnnotation(const Annotation& here, const Annotation& there) {
  return Same(ToJson(here), ToJson(there));
}

}  // namespace sparfuse::harness
