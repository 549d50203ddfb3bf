#include "harness/catalog/fusion_plan.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse::harness {

using nlohmann::json;

namespace {

// A number of a unit, which narrowing to its type would change beyond these limits.
template <class Value>
Value NumberWithin(const json& given, const char* what, std::int64_t least, std::int64_t most) {
  const auto number = given.is_number_integer() ? given.get<std::int64_t>() : least - 1;
  if (number < least || number > most) {
    SPARFUSE_THROW(kData, std::string("a plan from rank 0 has a unit with ") + what + " " +
                              given.dump() + ": expected " + std::to_string(least) + " to " +
                              std::to_string(most));
  }
  return static_cast<Value>(number);
}

}  // namespace

std::vector<std::uint8_t> EncodePlan(const Plan& plan) {
  json units = json::array();
  for (const Unit& unit : plan.units) {
    units.push_back({unit.first, unit.last, static_cast<int>(unit.sparsified), unit.density,
                     static_cast<int>(unit.lane), unit.partitions, unit.path});
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
      plan.units.push_back({unit.at(0), unit.at(1),
                            NumberWithin<Sparsified>(unit.at(2), "sparsified", 0, 2), unit.at(3),
                            NumberWithin<Lane>(unit.at(4), "lane", 0, kLanes - 1),
                            NumberWithin<std::uint16_t>(unit.at(5), "partitions", 1, 0xffff),
                            NumberWithin<std::uint8_t>(unit.at(6), "path", 0, 0xff)});
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
  json partitions = json::array();  // of each unit, where one has several
  json paths = json::array();       // likewise, where one is not sent the first way
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (plan.units[u].sparsified == Sparsified::kNever) dense_units.push_back(u);
    if (plan.units[u].lane == Lane::kSide) side_units.push_back(u);
    partitions.push_back(plan.units[u].partitions);
    paths.push_back(plan.units[u].path);
  }
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorPlan tensor = plan.TensorOf(layout, t);
    dense += tensor.density >= 1;
    offloaded += tensor.offloaded;
    reduced += tensor.reduced;
  }
  json summary = {{"step", step},
                  {"unit_sizes", plan.UnitSizes()},
                  {"dense_units", std::move(dense_units)},
                  {"side_units", std::move(side_units)},
                  {"tensors", {{"dense", dense}, {"offloaded", offloaded}, {"reduced", reduced}}}};
  if (std::ranges::any_of(plan.units, [](const Unit& unit) { return unit.partitions > 1; })) {
    summary["partitions"] = std::move(partitions);
  }
  if (std::ranges::any_of(plan.units, [](const Unit& unit) { return unit.path > 0; })) {
    summary["paths"] = std::move(paths);
  }
  return summary;
}

namespace {

constexpr int kTag = 0;  // nothing else is under way between steps

void Broadcast(ProgressLoop& loop, std::span<std::byte> data) {
  loop.RunBlocking([data](Communicator& world) { return Broadcast(world, data, 0, kTag); });
}

std::uint64_t HashOf(const GradientLayout& layout) {
  std::uint64_t hash = kFnvBegin;
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorEntry& tensor = layout.tensor(t);
    for (const std::uint64_t value :
         {FnvOf(tensor.name), std::uint64_t{tensor.numel}, std::uint64_t{tensor.offset},
          std::uint64_t{tensor.dense}, std::uint64_t{tensor.feedback}}) {
      hash = FnvAdd(hash, value);
    }
    for (const std::int64_t length : tensor.shape) {
      hash = FnvAdd(hash, static_cast<std::uint64_t>(length));
    }
  }
  return hash;
}

// What ranks must have in common.
struct Common {
  std::uint64_t plan, tensors;
};

void RequireTheSame(ProgressLoop& loop, const Plan& plan, const GradientLayout& layout) {
  const Common own{plan.Hash(), HashOf(layout)};
  std::vector<Common> all(static_cast<std::size_t>(loop.size()));
  loop.RunBlocking([&](Communicator& world) {
    return AllGather(world, std::as_bytes(std::span(&own, 1)),
                     std::as_writable_bytes(std::span(all)), kTag);
  });
  std::string plans, tensors;  // ranks
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].plan != all[0].plan) plans += " " + std::to_string(rank);
    if (all[rank].tensors != all[0].tensors) tensors += " " + std::to_string(rank);
  }
  if (plans.empty() && tensors.empty()) return;
  SPARFUSE_THROW(kInternal, "plan " + plan.UnitSizes() +
                                " of rank 0 is not the same on all ranks:" +
                                (plans.empty() ? "" : " another one has come to ranks" + plans) +
                                (tensors.empty() ? "" : " other tensors have ranks" + tensors) +
                                "; expected equal models and programs");
}

}  // namespace

Plan SharePlan(ProgressLoop& loop, const Plan& planned, const GradientLayout& layout) {
  std::vector<std::uint8_t> bytes;
  if (loop.rank() == 0) bytes = EncodePlan(planned);
  std::uint64_t size = bytes.size();
  Broadcast(loop, std::as_writable_bytes(std::span(&size, 1)));
  bytes.resize(size);
  Broadcast(loop, std::as_writable_bytes(std::span(bytes)));
  Plan plan = DecodePlan(bytes);
  RequireTheSame(loop, plan, layout);
  return plan;
}

}  // namespace sparfuse::harness
