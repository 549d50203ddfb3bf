// Sends one rank's payload to all: down a binomial tree, in ceil(log2 P) rounds.
//
// Source:      R. Thakur, R. Rabenseifner & W. Gropp, Optimization of Collective Communication
//              Operations in MPICH, IJHPCA 19(1), 2005 (binomial tree broadcast).
// Deviations:  counts are not exchanged first: a message's length tells its count.
#include <memory>

#include "core/collective/algorithms.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse {
namespace {

// Ranks are counted from the owner on. In the round of `distance`, the ranks below it send to the
// ranks that are `distance` farther.
class DownATree final : public Collective {
 public:
  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const std::size_t owner = buffers.shape.owner;
    CheckGatherBuffers("sparse-broadcast", buffers, ranks);
    const std::size_t place =
        (static_cast<std::size_t>(communicator.rank()) + ranks - owner) % ranks;
    const auto rank_at = [&](std::size_t at) { return static_cast<int>((at + owner) % ranks); };
    std::span<const std::byte> payload = buffers.own;
    std::size_t distance = 1;  // of the first round after this rank has the payload
    if (place > 0) {
      while (2 * distance <= place) distance *= 2;
      const int from = rank_at(place - distance);
      std::vector<std::unique_ptr<Request>> requests;
      requests.push_back(
          communicator.Irecv(from, tag, buffers.gathered.first(buffers.capacity_bytes)));
      requests = co_await Complete(std::move(requests));
      CheckPayloadBytes("sparse-broadcast", buffers, static_cast<std::size_t>(from),
                        requests[0]->bytes());
      payload = buffers.gathered.first(requests[0]->bytes());
      distance *= 2;
    }
    std::vector<std::unique_ptr<Request>> requests;
    for (; place + distance < ranks; distance *= 2) {
      requests.push_back(communicator.Isend(rank_at(place + distance), tag, payload));
    }
    co_await Complete(std::move(requests));
    buffers.payloads = {payload};
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    RoundPlan plan;
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    plan.per_rank.resize(ranks);
    const std::size_t owner = sizes.shape.owner;
    for (std::size_t distance = 1; distance < ranks; distance *= 2) {
      std::vector<RankMessage> messages;
      for (std::size_t place = 0; place < distance && place + distance < ranks; ++place) {
        messages.push_back({static_cast<int>((owner + place) % ranks),
                            static_cast<int>((owner + place + distance) % ranks),
                            sizes.payload_bytes[owner]});
      }
      AddRound(messages, topology, plan);
    }
    return plan;
  }
};

}  // namespace

const Collective& SparseBroadcast() {
  return OnlyOne<DownATree>("sparse-broadcast",
                            "Thakur, Rabenseifner & Gropp, IJHPCA 2005 (binomial tree)",
                            PayloadKind::kSparse);
}

}  // namespace sparfuse
