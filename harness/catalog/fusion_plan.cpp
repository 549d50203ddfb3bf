#include "harness/catalog/fusion_plan.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/collective/collective.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
RecordKeys KeysOf<PlanSummary::TensorCounts>() {
  using T = PlanSummary::TensorCounts;
  static constexpr auto kKeys =
      KeyTable<T>(Key<&T::dense>({.name = "dense"}), Key<&T::offloaded>({.name = "offloaded"}),
                  Key<&T::reduced>({.name = "reduced"}));
  return kKeys;
}

template <>
RecordKeys KeysOf<PlanSummary>() {
  using P = PlanSummary;
  static constexpr auto kKeys = KeyTable<P>(
      Key<&P::step>({.name = "step"}), Key<&P::unit_sizes>({.name = "unit_sizes"}),
      Key<&P::dense_units>({.name = "dense_units"}), Key<&P::side_units>({.name = "side_units"}),
      Key<&P::tensors>({.name = "tensors"}),
      Key<&P::partitions>({.name = "partitions", .optional = true}),
      Key<&P::paths>({.name = "paths", .optional = true}));
  return kKeys;
}

namespace {

// A number of a unit. Beyond these limits, conversion to its type would change it.
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
                     static_cast<int>(unit.lane), unit.partitions, unit.path, unit.date});
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
                            NumberWithin<std::uint8_t>(unit.at(6), "path", 0, 0xff),
                            NumberWithin<std::uint16_t>(unit.at(7), "date", 0, 0xffff)});
    }
    for (const json& tensor : data.at("tensors")) {
      plan.tensors.push_back({tensor.at(0), tensor.at(1), tensor.at(2)});
    }
    return plan;
  } catch (const json::exception& error) {
    SPARFUSE_THROW(kData, std::string("a plan from rank 0 is damaged: ") + error.what());
  }
}

json ToJson(const PlanSummary& plan) { return WriteRecord(plan); }

PlanSummary SummaryOf(const Plan& plan, const GradientLayout& layout, std::uint64_t step) {
  PlanSummary summary{.step = step, .unit_sizes = plan.UnitSizes()};
  auto& partitions = summary.partitions.emplace();
  auto& paths = summary.paths.emplace();
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (plan.units[u].sparsified == Sparsified::kNever) summary.dense_units.push_back(u);
    if (plan.units[u].lane == Lane::kSide) summary.side_units.push_back(u);
    partitions.push_back(plan.units[u].partitions);
    paths.push_back(plan.units[u].path);
  }
  for (std::size_t t = 0; t < layout.tensors(); ++t) {
    const TensorPlan tensor = plan.TensorOf(layout, t);
    summary.tensors.dense += tensor.density >= 1;
    summary.tensors.offloaded += tensor.offloaded;
    summary.tensors.reduced += tensor.reduced;
  }
  if (std::ranges::all_of(partitions, [](int parts) { return parts <= 1; }))
    summary.partitions.reset();
  if (std::ranges::all_of(paths, [](int path) { return path == 0; })) summary.paths.reset();
  return summary;
}

namespace {

constexpr int kTag = 0;  // no other message is under way between steps

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

// The hashes that must be equal on all ranks.
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
  std::string plans, tensors;  // ranks that differ
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].plan != all[0].plan) plans += " " + std::to_string(rank);
    if (all[rank].tensors != all[0].tensors) tensors += " " + std::to_string(rank);
  }
  if (plans.empty() && tensors.empty()) return;
  SPARFUSE_THROW(kInternal, "plan " + plan.UnitSizes() +
                                " of rank 0 is not the same on all ranks:" +
                                (plans.empty() ? "" : " another one reached ranks" + plans) +
                                (tensors.empty() ? "" : " tensors differ on ranks" + tensors) +
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
