// Holds one rank's exchange of SparDL: its place, its memory, and bundles of blocks as messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "baselines/spardl/spardl_blocks.hpp"
#include "baselines/spardl/spardl_count.hpp"
#include "baselines/spardl/spardl_sums.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

// Of one range: how many elements teams exchange. And memory, for the next exchange of the range.
struct SpardlState final : CollectiveState {
  SpardlSums sums;
  SpardlCount count;
  std::vector<std::byte> out, in;  // of a step
  std::vector<std::byte> lists;    // of all teams
  SparseSums merged, kept, rest, returned;
};

// At least so many elements' bytes of `memory`, which grows.
std::span<std::byte> RoomFor(std::size_t elements, std::vector<std::byte>& memory);

// Payloads one behind the other, as one. Precondition: `out` has room. Returns what was written.
std::span<std::byte> Join(std::span<const SparsePayload> parts, std::span<std::byte> out);

struct SpardlExchange {
  Communicator& communicator;
  ExchangeBuffers& buffers;
  SpardlState& state;
  SpardlBlocks blocks;
  std::size_t teams;
  std::size_t team;
  std::size_t own;  // place in the team, and block
  int tag;
  std::vector<SparsePayload> applied;  // [blocks] final sums
  std::vector<std::uint64_t> sent;     // ExchangeBuffers::seen

  // Places and teams go round: any number of them on.
  std::size_t Around(std::size_t place) const { return place % blocks.count(); }
  int RankAt(std::size_t at_team, std::size_t place) const {
    return static_cast<int>(at_team % teams * blocks.count() + Around(place));
  }

  // Those of `by_block` of `count` blocks from `first` on, in state.out: in the order of elements.
  std::span<const std::byte> Pack(std::span<const SparsePayload> by_block, std::size_t first,
                                  std::size_t count) const;
  // The same blocks of such a message, to by_block. Throws Error{kComm} where it has anything else.
  void Unpack(std::span<const std::byte> message, std::size_t first, std::size_t count,
              std::span<SparsePayload> by_block) const;
};

}  // namespace sparfuse::baselines
