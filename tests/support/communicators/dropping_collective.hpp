// Defines a minimal collective that drops elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/collective/collective.hpp"

namespace sparfuse::testing {

inline constexpr std::size_t kSurvivors = 12;

struct Elements {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;

  void Add(std::uint32_t index, float value) {
    indices.push_back(index);
    values.push_back(value);
  }
  std::size_t WriteTo(std::byte* out) const {
    const std::size_t half = indices.size() * sizeof(std::uint32_t);
    if (half > 0) {
      std::memcpy(out, indices.data(), half);
      std::memcpy(out + half, values.data(), half);
    }
    return 2 * half;
  }
};

// All ranks gather all payloads and apply the kSurvivors largest sums. A rank's other elements go
// back to it. The result is one payload of sums, the same on all ranks.
class GlobalTopK final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    co_await CoreCollective("sparse-allgather")->Run(communicator, buffers, tag);
    std::map<std::uint32_t, float> sums;
    for (const std::span<const std::byte> bytes : buffers.payloads) {
      const SparsePayload payload = ViewSparsePayload(bytes);
      for (std::size_t i = 0; i < payload.indices.size(); ++i) {
        sums[payload.indices[i]] += payload.values[i];
      }
    }
    std::vector<std::pair<std::uint32_t, float>> ordered(sums.begin(), sums.end());
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
      return std::abs(a.second) > std::abs(b.second);
    });
    for (std::size_t i = kSurvivors; i < ordered.size(); ++i) sums.erase(ordered[i].first);

    Elements back;
    const SparsePayload own = ViewSparsePayload(buffers.own);
    for (std::size_t i = 0; i < own.indices.size(); ++i) {
      if (!sums.contains(own.indices[i])) back.Add(own.indices[i], own.values[i]);
    }
    buffers.returned.resize(back.indices.size() * kSparseElementBytes);
    back.WriteTo(buffers.returned.data());
    Elements applied;
    for (const auto& [index, sum] : sums) applied.Add(index, sum);
    const std::size_t bytes = applied.WriteTo(buffers.gathered.data());
    buffers.payloads.assign(1, buffers.gathered.first(bytes));
  }
  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return CoreCollective("sparse-allgather")->Rounds(sizes, topology);
  }
};

inline CollectiveDescriptor DroppingDescriptor() {
  return {.name = "global-topk",
          .source = "",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = [](const Options&) -> std::unique_ptr<Collective> {
            return std::make_unique<GlobalTopK>();
          },
          .host_memory = true,
          .traits = [](const Options&) { return CollectiveTraits{.sums = true, .drops = true}; }};
}

inline std::shared_ptr<const Collective> Dropping() {
  static const CollectiveDescriptor kDescriptor = DroppingDescriptor();
  static const std::shared_ptr<const Collective> kDropping = MakeCollective(kDescriptor);
  return kDropping;
}

}  // namespace sparfuse::testing
