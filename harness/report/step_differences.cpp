#include "harness/report/step_differences.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "harness/report/spec_cells.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::map<int, double> ValuesOf(const json& blocks, const std::string& part,
                               const std::vector<int>& chosen) {
  std::map<int, double> values;
  for (const int block : chosen) values[block] = blocks.at(std::to_string(block)).at(part);
  return values;
}

double MeanOf(const std::map<int, double>& values) {
  double sum = 0;
  for (const auto& [block, value] : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

json StepDifferences(const json& of, const json& over, bool same_mode) {
  std::vector<int> of_blocks, over_blocks, common;
  for (const auto& [block, parts] : of.items()) {
    of_blocks.push_back(std::stoi(block));
    if (over.contains(block)) common.push_back(of_blocks.back());
  }
  for (const auto& [block, parts] : over.items()) over_blocks.push_back(std::stoi(block));
  for (auto* blocks : {&of_blocks, &over_blocks, &common})
    std::sort(blocks->begin(), blocks->end());
  const bool paired = same_mode && !common.empty();
  if (paired) of_blocks = over_blocks = common;
  json parts = json::object();
  for (const auto& [part, value] : of.front().items()) {
    if (!value.is_number()) continue;
    const auto ours = ValuesOf(of, part, of_blocks);
    const auto other = ValuesOf(over, part, over_blocks);
    json difference = {
        {"value", MeanOf(ours) - MeanOf(other)}, {"low", nullptr}, {"high", nullptr}, {"n", 0}};
    if (paired) difference = IntervalJson(PairedDifference(ours, other));
    parts[part] = {{"of", MeanOf(ours)}, {"over", MeanOf(other)}, {"difference", difference}};
  }
  return {{"paired", paired},
          {"blocks", {{"of", of_blocks}, {"over", over_blocks}}},
          {"parts", std::move(parts)}};
}

}  // namespace sparfuse::harness
