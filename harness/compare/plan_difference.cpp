#include "harness/compare/plan_difference.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "baselines/espresso/espresso_planner.hpp"
#include "harness/wording/numbers.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Espresso's ways of sending, by the runtime's numbers (baselines/espresso/espresso_planner.hpp).
constexpr const char* kEspressoWays[] = {"whole",
                                         "whole in fp16",
                                         "summed in nodes, by a root between them",
                                         "summed in nodes, all-to-all between them",
                                         "summed in nodes, gathered between them",
                                         "summed in nodes, selected on the host",
                                         "selected in nodes, by a root between them",
                                         "selected in nodes, all-to-all between them",
                                         "by one rank a node",
                                         "selected in nodes, gathered between them",
                                         "gathered by all ranks",
                                         "all-to-all of all ranks",
                                         "selected in nodes and from the sum",
                                         "in fp16 by servers",
                                         "by servers"};

std::string TextIn(const json& table, const char* key) {
  const json value = table.is_object() ? table.value(key, json()) : json();
  return value.is_string() ? value.get<std::string>() : "";
}

json ListIn(const json& table, const char* key) {
  const json value = table.is_object() ? table.value(key, json()) : json();
  return value.is_array() ? value : json::array();
}

json TableIn(const json& table, const char* key) {
  const json value = table.is_object() ? table.value(key, json()) : json();
  return value.is_object() ? value : json::object();
}

// The strategy's name for a unit's way of sending, if it numbers its ways.
std::string WayText(const std::string& strategy, const json& path) {
  const bool known = strategy == "espresso" && path.is_number_integer() && path >= 0 &&
                     path < static_cast<int>(std::size(kEspressoWays));
  return known ? kEspressoWays[path.get<std::size_t>()] : "by way " + path.dump();
}

// The numbers of units by collective: "3 dense by all-reduce", "9 by sparse-allgather".
std::vector<std::string> SentBy(const json& plan, std::size_t units, const json& options) {
  const json dense = ListIn(plan, "dense_units");
  const std::string collective = TextIn(options, "collective");
  std::vector<std::string> kinds;
  if (!dense.empty()) kinds.push_back(fmt::format("{} dense by all-reduce", dense.size()));
  if (!collective.empty() && units > dense.size())
    kinds.push_back(fmt::format("{} by {}", units - dense.size(), collective));
  return kinds;
}

std::string Sentence(const SidePlan& side, const json& plan) {
  const std::string sizes = TextIn(plan, "unit_sizes");
  const auto units = sizes.empty() ? 0 : std::ranges::count(sizes, ',') + 1;
  std::string text = fmt::format("{} makes {} exchange{}", side.side, units, units == 1 ? "" : "s");
  const json options = TableIn(side.config, "method_options");
  std::vector<std::string> kinds = SentBy(plan, static_cast<std::size_t>(units), options);
  if (const json list = ListIn(plan, "side_units"); !list.empty())
    kinds.push_back(fmt::format("{} selected from beside backward", list.size()));
  std::map<json, int> in_parts, of_path;
  for (const json& parts : ListIn(plan, "partitions")) {
    if (parts.is_number_integer() && parts > 1) ++in_parts[parts];
  }
  for (const auto& [parts, number] : in_parts)
    kinds.push_back(fmt::format("{} in {} parts", number, parts.dump()));
  for (const json& path : ListIn(plan, "paths")) ++of_path[path];
  for (const auto& [path, number] : of_path)
    kinds.push_back(fmt::format("{} {}", number, WayText(TextIn(options, "strategy"), path)));
  const json tensors = TableIn(plan, "tensors");
  for (const char* key : {"dense", "offloaded", "reduced"}) {
    const json number = tensors.value(key, json(0));
    if (number.is_number_integer() && number != 0)
      kinds.push_back(fmt::format("{} tensors {}", number.dump(), key));
  }
  if (const std::string algorithm = TextIn(side.environment, "NCCL_ALGO"); !algorithm.empty())
    kinds.push_back("NCCL told " + algorithm);
  if (side.achieved_density)
    kinds.push_back(fmt::format("density achieved {:.3g}", *side.achieved_density));
  if (!kinds.empty()) text += fmt::format(": {}", fmt::join(kinds, ", "));
  if (side.sparsify_seconds && side.exposed_seconds) {
    text +=
        fmt::format(" (selection {}, exposed communication {} a step)",
                    Quantity(*side.sparsify_seconds, "s"), Quantity(*side.exposed_seconds, "s"));
  }
  return text;
}

}  // namespace

json LastPlan(const json& outcome) {
  if (!outcome.is_object()) return nullptr;
  const json plans = outcome.value("plans", json::array());
  if (!plans.is_array() || plans.empty() || !plans.back().is_object()) return nullptr;
  json plan = plans.back();
  plan.erase("step");
  return plan;
}

std::string PlanDifference(const std::vector<SidePlan>& plans) {
  std::vector<std::string> sentences;
  json first;
  bool differs = false;
  for (const SidePlan& side : plans) {
    const json plan = LastPlan(side.outcome);
    if (plan.is_null()) continue;
    if (first.is_null()) first = plan;
    differs = differs || plan != first;
    sentences.push_back(Sentence(side, plan));
  }
  return differs ? fmt::format("{}", fmt::join(sentences, "; ")) : "";
}

}  // namespace sparfuse::harness
