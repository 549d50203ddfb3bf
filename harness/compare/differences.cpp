#include "harness/compare/differences.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "harness/report/provenance.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using Facts = std::map<std::string, std::set<std::string>>;

constexpr std::string_view kOfOneTrial[] = {
    "argv", "machine.placement", "machine.load_before", "machine.cards", "sampling", "table"};

bool IsOfOneTrial(const std::string& name) {
  return std::ranges::any_of(kOfOneTrial, [&](std::string_view head) {
    return name == head || (name.starts_with(head) && name[head.size()] == '.');
  });
}

Facts FactsOf(const std::vector<CellResult>& cells) {
  PartResult part;
  part.cells = cells;
  const json summary = ProvenanceOf({part});
  Facts facts;
  for (const json& system : summary.at("systems")) {
    for (const auto& [name, value] : system.at("facts").items())
      facts["system." + name].insert(value.get<std::string>());
  }
  for (const auto& [name, values] : summary.at("facts").items()) {
    if (!IsOfOneTrial(name)) facts[name] = values.get<std::set<std::string>>();
  }
  return facts;
}

}  // namespace

std::vector<FactDifference> DifferencesOf(const std::vector<std::vector<CellResult>>& sides) {
  std::vector<Facts> facts;
  std::set<std::string> names;
  for (const auto& cells : sides) {
    facts.push_back(FactsOf(cells));
    for (const auto& [name, values] : facts.back()) names.insert(name);
  }
  std::vector<FactDifference> differences;
  for (const std::string& name : names) {
    FactDifference difference{name, {}, false};
    for (Facts& side : facts) {
      const std::set<std::string>& values = side[name];
      difference.values.push_back(fmt::format("{}", fmt::join(values, " | ")));
      difference.hidden = difference.hidden || values.size() > 1;
    }
    const bool same = std::ranges::all_of(difference.values, [&](const std::string& value) {
      return value == difference.values.front();
    });
    if (!same || difference.hidden) differences.push_back(std::move(difference));
  }
  std::ranges::stable_partition(
      differences, [](const FactDifference& each) { return each.name.starts_with("system."); });
  return differences;
}

}  // namespace sparfuse::harness
