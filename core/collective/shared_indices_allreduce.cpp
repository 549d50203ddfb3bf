// Sums payloads with the same indices on all ranks: only their values are sent, by a dense ring.
//
// Source: T. Vogels, S. P. Karimireddy & M. Jaggi, PowerSGD, NeurIPS 2019, section 5.1 (random
//         k and random block as compressors that an all-reduce can sum).
//
// A hash detects ranks with other indices. It is added to the values as two floats that no sum can
// round: 12 bits of the hash each, so that up to 2^12 ranks add.
#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/collective/algorithms.hpp"

namespace sparfuse {
namespace {

constexpr std::size_t kHashWords = 2;

std::uint32_t HashOf(std::span<const std::uint32_t> indices) {
  std::uint64_t hash = kFnvBegin;
  for (const std::uint32_t index : indices) hash = FnvAdd(hash, index);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32));
}

float Word(std::uint32_t hash, std::size_t i) {
  return static_cast<float>((hash >> (12 * i)) & 0xfffu);
}

class SharedIndices final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const SparsePayload own = ViewSparsePayload(buffers.own);
    const std::size_t count = own.indices.size();
    const auto ranks = static_cast<float>(communicator.size());
    const std::uint32_t hash = HashOf(own.indices);
    // The room holds a payload, with the words of the hash behind the values.
    const std::size_t bytes = count * kSparseElementBytes + kHashWords * sizeof(float);
    const std::span<std::byte> room = buffers.Keep(bytes);
    std::ranges::copy(buffers.own, room.data());
    const std::span<float> sums(
        reinterpret_cast<float*>(room.data() + count * sizeof(std::uint32_t)), count + kHashWords);
    for (std::size_t i = 0; i < kHashWords; ++i) sums[count + i] = Word(hash, i);
    co_await RunRingAllReduce(communicator, sums, tag);
    for (std::size_t i = 0; i < kHashWords; ++i) {
      if (sums[count + i] == ranks * Word(hash, i)) continue;
      SPARFUSE_THROW(kComm,
                     "shared-indices-allreduce: ranks have selected different indices: expected a "
                     "sparsifier that selects the same indices on all ranks");
    }
    buffers.payloads.assign(1, room.first(count * kSparseElementBytes));
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    const std::uint64_t count = sizes.payload_bytes.front() / kSparseElementBytes;
    RoundPlan plan = RingAllReduceRounds(count + kHashWords, topology);
    plan.sums = count;
    return plan;
  }
};

}  // namespace

CollectiveDescriptor SharedIndicesAllReduce() {
  return {.name = "shared-indices-allreduce",
          .source = "Vogels, Karimireddy & Jaggi, NeurIPS 2019, section 5.1",
          .revision = 1,
          .payload = PayloadKind::kSparse,
          .make = MakePlain<SharedIndices>,
          .host_memory = true,
          .traits =
              [](const Options&) {
                return CollectiveTraits{.sums = true, .equal_counts = true, .same_indices = true};
              },
          .summary = "values of payloads that have the same indices, summed around a ring"};
}

}  // namespace sparfuse
