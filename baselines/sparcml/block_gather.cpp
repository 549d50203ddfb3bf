#include "baselines/sparcml/block_gather.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/rounds.hpp"

namespace sparfuse::baselines {
namespace {

// Blocks first ... last - 1 of those that are gathered.
struct Piece {
  std::size_t first = 0;
  std::size_t last = 0;
};

// `count` blocks from `first` on, modulo `ranks`: up to two pieces, of which the second may be
// none.
std::array<Piece, 2> PiecesOf(std::size_t first, std::size_t count, std::size_t ranks) {
  first %= ranks;
  const std::size_t last = first + count;
  return {{{first, std::min(last, ranks)}, {0, last > ranks ? last - ranks : 0}}};
}

}  // namespace

Task GatherBlocks(Communicator& communicator, std::span<std::byte> data,
                  std::span<const std::uint64_t> begins, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto bytes_of = [&](const Piece& piece) {
    return data.subspan(begins[piece.first], begins[piece.last] - begins[piece.first]);
  };
  for (std::size_t held = 1; held < ranks; held *= 2) {
    const std::size_t count = std::min(held, ranks - held);
    const auto to = static_cast<int>((rank + ranks - held) % ranks);
    const auto from = static_cast<int>((rank + held) % ranks);
    std::vector<std::unique_ptr<Request>> requests;
    std::vector<std::size_t> expected;
    for (const Piece& piece : PiecesOf(rank + held, count, ranks)) {
      if (piece.first == piece.last) continue;
      expected.push_back(bytes_of(piece).size());
      requests.push_back(communicator.Irecv(from, tag, bytes_of(piece)));
    }
    for (const Piece& piece : PiecesOf(rank, count, ranks)) {
      if (piece.first == piece.last) continue;
      requests.push_back(communicator.Isend(to, tag, bytes_of(piece)));
    }
    requests = co_await Complete(std::move(requests));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (requests[i]->bytes() == expected[i]) continue;
      SPARFUSE_THROW(kComm, "all-gather of blocks: " + std::to_string(requests[i]->bytes()) +
                                " bytes from rank " + std::to_string(from) + ": expected " +
                                std::to_string(expected[i]));
    }
  }
}

void AddGatherRounds(std::span<const std::uint64_t> begins, const Topology& topology,
                     RoundPlan& plan) {
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  std::vector<RankMessage> messages;
  for (std::size_t held = 1; held < ranks; held *= 2) {
    messages.clear();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto to = static_cast<int>((rank + ranks - held) % ranks);
      for (const Piece& piece : PiecesOf(rank, std::min(held, ranks - held), ranks)) {
        if (piece.first == piece.last) continue;
        messages.push_back({static_cast<int>(rank), to, begins[piece.last] - begins[piece.first]});
      }
    }
    AddRound(messages, topology, plan);
  }
}

}  // namespace sparfuse::baselines
