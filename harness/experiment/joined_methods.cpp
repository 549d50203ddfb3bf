#include "harness/experiment/joined_methods.hpp"

#include <algorithm>
#include <utility>

#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Of the rows' keys those that belong to no method, each combination once.
std::vector<GivenKeys> SettingsOf(const std::vector<GivenKeys>& rows) {
  std::vector<GivenKeys> settings;
  const auto same = [](const GivenKeys& a, const GivenKeys& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.first == y.first && x.second.value == y.second.value;
    });
  };
  for (GivenKeys row : rows) {
    for (const std::string& key : MethodKeys()) row.erase(key);
    if (std::none_of(settings.begin(), settings.end(),
                     [&](const GivenKeys& known) { return same(known, row); }))
      settings.push_back(std::move(row));
  }
  return settings;
}

// What a list of the axis has for a key of a method that is left to its default.
json Unsaid(const json& list) { return list.front().is_object() ? json::object() : json(); }

void JoinList(std::span<const std::string> joined, json& list) {
  if (!list.is_array()) return;
  for (const std::string& method : joined) {
    if (std::find(list.begin(), list.end(), method) == list.end()) list.push_back(method);
  }
}

}  // namespace

void JoinMethods(std::span<const std::string> joined, const std::string& pointer,
                 std::vector<GivenKeys>& rows, json& axis) {
  if (!rows.front().contains("method")) return;
  const std::vector<GivenKeys> settings = SettingsOf(rows);
  for (const std::string& method : joined) {
    if (std::any_of(rows.begin(), rows.end(),
                    [&](const GivenKeys& row) { return row.at("method").value == method; }))
      continue;
    for (GivenKeys row : settings) {
      row["method"] = {method, pointer + "/method", true};
      for (auto& [key, list] : axis.items())
        list.push_back(row.contains(key) ? row.at(key).value : Unsaid(list));
      rows.push_back(std::move(row));
    }
  }
}

void JoinFigure(std::span<const std::string> joined, json& figure) {
  for (const char* key : {"methods", "method"}) {
    if (figure.contains(key)) JoinList(joined, figure[key]);
  }
  if (figure.contains("where") && figure["where"].contains("method"))
    JoinList(joined, figure["where"]["method"]);
}

}  // namespace sparfuse::harness
