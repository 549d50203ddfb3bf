#include "harness/catalog/fusion_plan_json.hpp"

#include <string>

#include "core/base/error.hpp"

namespace sparfuse::harness {

using nlohmann::json;

std::vector<std::uint8_t> EncodePlan(const Plan& plan) {
  json units = json::array();
  for (const Unit& unit : plan.units) {
    units.push_back({unit.first, unit.last, static_cast<int>(unit.sparsified), unit.density,
                     static_cast<int>(unit.lane)});
  }
  json tensors = json::array();
  for (const TensorPlan& tensor : plan.tensors) {
    tensors.push_back({tensor.density, tensor.offloaded, tensor.reduced});
  }
  return json::to_cbor({{"units", std::move(units)}, {"tensors", std::move(tensors)}});
}

Plan DecodePlan(std::span<const std::uint8_t> bytes) {
  try {
    const json data = json::from_cbor(bytes.begin(), bytes.end());
    Plan plan;
    for (const json& unit : data.at("units")) {
      const int sparsified = unit.at(2);
      if (sparsified < 0 || sparsified > static_cast<int>(Sparsified::kBehind)) {
        SPARFUSE_THROW(kData, "a plan from rank 0 says where a unit is sparsified with " +
                                  std::to_string(sparsified) + ": expected 0, 1 or 2");
      }
      const int lane = unit.at(4);
      if (lane < 0 || lane >= static_cast<int>(kLanes)) {
        SPARFUSE_THROW(kData, "a plan from rank 0 has a unit on lane " + std::to_string(lane) +
                                  ": expected 0 to " + std::to_string(kLanes - 1));
      }
      plan.units.push_back({unit.at(0), unit.at(1), static_cast<Sparsified>(sparsified), unit.at(3),
                            static_cast<Lane>(lane)});
    }
    for (const json& tensor : data.at("tensors")) {
      plan.tensors.push_back({tensor.at(0), tensor.at(1), tensor.at(2)});
    }
    return plan;
  } catch (const json::exception& error) {
    SPARFUSE_THROW(kData, std::string("a plan from rank 0 is damaged: ") + error.what());
  }
}

json PlanSummary(const Plan& plan, const GradientLayout& layout, std::uint64_t step) {
  std::size_t dense = 0;
  std::size_t offloaded = 0;
  std::size_t reduced = 0;
  json dense_units = json::array();
  json side_units = json::array();
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (plan.units[u].sparsified == Sparsified::kNever) dense_units.push_back(u);
    if (plan.units[u].lane == Lane::kSide) side_units.push_back(u);
  }
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorPlan tensor = plan.TensorOf(layout, t);
    dense += tensor.density >= 1;
    offloaded += tensor.offloaded;
    reduced += tensor.reduced;
  }
  return {{"step", step},
          {"unit_sizes", plan.UnitSizes()},
          {"dense_units", std::move(dense_units)},
          {"side_units", std::move(side_units)},
          {"tensors", {{"dense", dense}, {"offloaded", offloaded}, {"reduced", reduced}}}};
}

}  // namespace sparfuse::harness
