#include "harness/catalog/plans/shared_plan.hpp"

#include <array>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/collective/control.hpp"
#include "harness/catalog/plans/fusion_plan_json.hpp"

namespace sparfuse::harness {
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
