// Runs the sparse half of a direct all-reduce: each rank sends its selection of part j to rank j.
//
// Source:      Y. Bai et al., Gradient Compression Supercharged High-Performance Data Parallel DNN
//              Training (HiPress), SOSP 2021, section 3 (CaSync-PS: encode, send, merge).
// Deviations:  counts are not exchanged first: a message's length tells its count.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/base/error.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse {
namespace {

// Writes the parts to `to`, one after another, each as a payload of its own. Parts that `own` holds
// encoded whole are copied.
std::vector<std::span<const std::byte>> SplitParts(const ExchangeBuffers& buffers,
                                                   std::span<std::byte> to) {
  std::vector<std::span<const std::byte>> parts;
  if (!buffers.part_bytes.empty()) {
    std::memcpy(to.data(), buffers.own.data(), buffers.own.size());
    for (const std::size_t bytes : buffers.part_bytes) {
      parts.push_back(to.first(bytes));
      to = to.subspan(bytes);
    }
    return parts;
  }
  const SparsePayload own = ViewSparsePayload(buffers.own);
  auto first = own.indices.begin();
  for (std::size_t j = 0; j + 1 < buffers.part_begins.size(); ++j) {
    const auto last = std::lower_bound(first, own.indices.end(), buffers.part_begins[j + 1]);
    const std::span<const std::uint32_t> indices(first, last);
    const auto values =
        own.values.subspan(static_cast<std::size_t>(first - own.indices.begin()), indices.size());
    std::ranges::copy(std::as_bytes(indices), to.begin());
    std::ranges::copy(std::as_bytes(values),
                      to.begin() + static_cast<std::ptrdiff_t>(indices.size_bytes()));
    const std::size_t bytes = indices.size_bytes() + values.size_bytes();
    parts.push_back(to.first(bytes));
    to = to.subspan(bytes);
    first = last;
  }
  return parts;
}

class Scatter final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const auto rank = static_cast<std::size_t>(communicator.rank());
    CheckGatherBuffers("sparse-reduce-scatter", buffers, ranks);
    const auto parts = SplitParts(buffers, buffers.Keep(buffers.own.size()));
    if (parts.size() > ranks) {
      SPARFUSE_THROW(kInternal, "sparse-reduce-scatter: ", parts.size(), " parts for ", ranks,
                     " ranks");
    }
    const std::size_t owner = buffers.shape.owner;
    const bool owns = (rank + ranks - owner) % ranks < parts.size();
    std::vector<std::unique_ptr<Request>> requests;
    std::vector<std::size_t> from;
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t other = (rank + ranks - step) % ranks;
      if (!owns) break;
      const auto slot =
          buffers.gathered.subspan(other * buffers.capacity_bytes, buffers.capacity_bytes);
      requests.push_back(communicator.Irecv(static_cast<int>(other), tag, slot));
      from.push_back(other);
    }
    for (std::size_t step = 1; step < ranks; ++step) {
      const std::size_t other = (rank + step) % ranks;
      const std::size_t part = (other + ranks - owner) % ranks;
      if (part >= parts.size()) continue;
      requests.push_back(communicator.Isend(static_cast<int>(other), tag, parts[part]));
    }
    requests = co_await Complete(std::move(requests));
    if (!owns) co_return;
    buffers.payloads.assign(ranks, {});
    buffers.payloads[rank] = parts[(rank + ranks - owner) % ranks];
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::size_t bytes = requests[i]->bytes();
      CheckPayloadBytes("sparse-reduce-scatter", buffers, from[i], bytes);
      buffers.payloads[from[i]] = buffers.gathered.subspan(from[i] * buffers.capacity_bytes, bytes);
    }
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    RoundPlan plan;
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    plan.per_rank.resize(ranks);
    std::vector<RankMessage> messages;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t j = 0; j < sizes.part_bytes[rank].size(); ++j) {
        const std::size_t owner = (sizes.shape.owner + j) % ranks;
        if (owner == rank) continue;
        messages.push_back(
            {static_cast<int>(rank), static_cast<int>(owner), sizes.part_bytes[rank][j]});
      }
    }
    if (!messages.empty()) AddRound(messages, topology, plan);
    return plan;
  }
};

}  // namespace

const Collective& SparseReduceScatter() {
  return OnlyOne<Scatter>("sparse-reduce-scatter", "Bai et al., HiPress, SOSP 2021, section 3",
                          PayloadKind::kSparse);
}

}  // namespace sparfuse
