#include "harness/compare/plan_difference.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// What PlanSummary wrote last; null where there is none.
json LastPlan(const SidePlan& side) {
  if (!side.outcome.is_object()) return nullptr;
  const json plans = side.outcome.value("plans", json::array());
  if (!plans.is_array() || plans.empty() || !plans.back().is_object()) return nullptr;
  json plan = plans.back();
  plan.erase("step");
  return plan;
}

std::string Sentence(const SidePlan& side, const json& plan) {
  const std::string sizes = plan.value("unit_sizes", "");
  const auto units = sizes.empty() ? 0 : std::ranges::count(sizes, ',') + 1;
  std::string text = fmt::format("{} makes {} exchange{}", side.side, units, units == 1 ? "" : "s");
  std::vector<std::string> kinds;
  const auto count = [&](const char* key, const char* what) {
    const json list = plan.value(key, json::array());
    if (list.is_array() && !list.empty()) kinds.push_back(fmt::format("{} {}", list.size(), what));
  };
  count("dense_units", "dense");
  count("side_units", "selected from beside backward");
  const json tensors = plan.value("tensors", json::object());
  for (const char* key : {"dense", "offloaded", "reduced"}) {
    const json number = tensors.is_object() ? tensors.value(key, json(0)) : json(0);
    if (number.is_number_integer() && number != 0)
      kinds.push_back(fmt::format("{} tensors {}", number.dump(), key));
  }
  if (!kinds.empty()) text += fmt::format(": {}", fmt::join(kinds, ", "));
  if (side.sparsify_seconds && side.exposed_seconds) {
    text += fmt::format(" (selection {:.3g} ms, exposed communication {:.3g} ms a step)",
                        1e3 * *side.sparsify_seconds, 1e3 * *side.exposed_seconds);
  }
  return text;
}

}  // namespace

std::string PlanDifference(const std::vector<SidePlan>& plans) {
  std::vector<std::string> sentences;
  json first;
  bool differs = false;
  for (const SidePlan& side : plans) {
    const json plan = LastPlan(side);
    if (plan.is_null()) continue;
    if (first.is_null()) first = plan;
    differs = differs || plan != first;
    sentences.push_back(Sentence(side, plan));
  }
  return differs ? fmt::format("{}", fmt::join(sentences, "; ")) : "";
}

}  // namespace sparfuse::harness
