#include "baselines/oktopk/balanced_blocks.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/collective/message_rounds.hpp"

namespace sparfuse::baselines {

std::vector<std::uint64_t> BlockCounts(std::uint64_t total, std::size_t ranks) {
  std::vector<std::uint64_t> counts(ranks, total / ranks);
  for (std::size_t j = 0; j < total % ranks; ++j) ++counts[j];
  return counts;
}

std::vector<BlockPiece> BlockPieces(std::span<const std::uint64_t> counts) {
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const std::vector<std::uint64_t> blocks = BlockCounts(total, counts.size());
  std::vector<BlockPiece> pieces;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t from_end = counts[0];
  std::uint64_t to_end = blocks[0];
  for (std::uint64_t at = 0; at < total;) {
    while (from_end <= at) from_end += counts[++from];
    while (to_end <= at) to_end += blocks[++to];
    const std::uint64_t end = std::min(from_end, to_end);
    pieces.push_back({from, to, at, end - at});
    at = end;
  }
  return pieces;
}

Task MoveToBlocks(Communicator& communicator, const SparsePayload& own,
                  std::span<const std::uint64_t> counts, std::span<std::byte> block, int tag) {
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto before = [&](std::span<const std::uint64_t> of) {
    return std::accumulate(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(rank),
                           std::uint64_t{0});
  };
  const std::uint64_t total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const std::vector<std::uint64_t> blocks = BlockCounts(total, counts.size());
  const std::uint64_t own_begin = before(counts);
  const std::uint64_t block_begin = before(blocks);
  std::byte* const block_values = block.data() + blocks[rank] * sizeof(std::uint32_t);
  const auto place = [&](const BlockPiece& piece, const SparsePayload& elements) {
    const std::size_t at = (piece.begin - block_begin) * sizeof(std::uint32_t);
    std::memcpy(block.data() + at, elements.indices.data(), elements.indices.size_bytes());
    std::memcpy(block_values + at, elements.values.data(), elements.values.size_bytes());
  };

  std::vector<std::byte> outgoing(own.indices.size() * kSparseElementBytes);
  std::vector<std::byte> incoming(block.size());
  std::vector<BlockPiece> expected;
  std::vector<std::unique_ptr<Request>> receives, sends;
  for (const BlockPiece& piece : BlockPieces(counts)) {
    const std::size_t bytes = piece.count * kSparseElementBytes;
    if (piece.from == rank) {
      const std::size_t first = piece.begin - own_begin;
      const SparsePayload elements = {own.indices.subspan(first, piece.count),
                                      own.values.subspan(first, piece.count)};
      if (piece.to == rank) {
        place(piece, elements);
        continue;
      }
      const auto part = std::span(outgoing).subspan(first * kSparseElementBytes, bytes);
      std::memcpy(part.data(), elements.indices.data(), bytes / 2);
      std::memcpy(part.data() + bytes / 2, elements.values.data(), bytes / 2);
      sends.push_back(communicator.Isend(static_cast<int>(piece.to), tag, part));
    } else if (piece.to == rank) {
      const auto part =
          std::span(incoming).subspan((piece.begin - block_begin) * kSparseElementBytes, bytes);
      receives.push_back(communicator.Irecv(static_cast<int>(piece.from), tag, part));
      expected.push_back(piece);
    }
  }
  std::move(sends.begin(), sends.end(), std::back_inserter(receives));
  const auto requests = co_await Complete(std::move(receives));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const BlockPiece& piece = expected[i];
    const std::size_t bytes = piece.count * kSparseElementBytes;
    if (requests[i]->bytes() != bytes) {
      SPARFUSE_THROW(kComm, "balanced blocks: " + std::to_string(requests[i]->bytes()) +
                                " bytes from rank " + std::to_string(piece.from) + ": expected " +
                                std::to_string(bytes));
    }
    place(piece, ViewSparsePayload(std::span(incoming).subspan(
                     (piece.begin - block_begin) * kSparseElementBytes, bytes)));
  }
}

void AddMoveRounds(std::span<const std::uint64_t> counts, const Topology& topology,
                   RoundPlan& plan) {
  std::vector<RankMessage> messages;
  for (const BlockPiece& piece : BlockPieces(counts)) {
    if (piece.from == piece.to) continue;
    messages.push_back({static_cast<int>(piece.from), static_cast<int>(piece.to),
                        piece.count * kSparseElementBytes});
  }
  if (!messages.empty()) AddRound(messages, topology, plan);
}

}  // namespace sparfuse::baselines
