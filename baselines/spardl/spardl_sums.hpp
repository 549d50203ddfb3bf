// Holds what a rank knows of each block while sums travel: what has arrived of it, what the rank
// keeps when it cuts the block, and what goes back to its residual in the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "baselines/spardl/spardl_blocks.hpp"
#include "core/base/thread_pool.hpp"
#include "core/collective/collective.hpp"
#include "core/payload/sums.hpp"
#include "core/sparsify/sparsifier.hpp"

namespace sparfuse::baselines {

// A block's content on a rank is its own part plus what has arrived. Global residual collection:
// where an index of the block is applied in the end, the rank keeps what it has not passed on of
// the content there; where it is not, its own part. Over all ranks nothing is lost then: what was
// dropped on the way at an index that is not applied is in the own parts that it was made of.
//
// Nothing in here waits; one exchange at a time uses it. Memory is used again by the next one.
class SpardlSums {
 public:
  SpardlSums();

  // An exchange begins. The own part of a block is what lies there of `accumulated`, dense, the
  // numbers finite; it stays in the residual, of which the return says so much less.
  void BeginLazy(const SpardlBlocks& blocks, std::span<const float> accumulated,
                 std::uint64_t step);
  // The own part is what lies there of a payload, which is in no residual.
  void BeginEager(const SpardlBlocks& blocks, const SparsePayload& own);

  // Another rank's sums are added to a block.
  void Add(std::size_t block, const SparsePayload& arrived);
  // Once a block, when nothing more arrives: its `most` largest elements are passed on. In the lazy
  // form exactly so many, zeros included, or as many as it has.
  void Cut(std::size_t block, std::size_t most);
  SparsePayload cut(std::size_t block) const { return parts_[block].cut.view(); }
  // Sums of several ranks that were dropped after the cut, which this one rank keeps for them.
  void Keep(std::size_t block, const SparsePayload& dropped);

  // Appends what goes back to the residual, where `applied` is what is applied of the block.
  void AppendReturned(std::size_t block, const SparsePayload& applied, SparseSums& out) const;

 private:
  struct Part {
    SparseSums sums;     // arrived; eager: with the own part
    SparseSums cut;      // passed on
    SparseSums rest;     // eager: the other sums
    SparseSums dropped;  // of Keep
    std::unique_ptr<SparsifierState> state;
  };

  void Begin(const SpardlBlocks& blocks);
  void CutAccumulated(std::size_t block, std::size_t most);
  void SelectOf(std::size_t block, std::size_t count);
  void AddAccumulated(const SparseSums& sums);

  SpardlBlocks blocks_{{}, 1};
  std::span<const float> accumulated_;
  SparsePayload own_;
  bool lazy_ = false;
  std::uint64_t step_ = 0;
  std::vector<Part> parts_;  // [blocks]

  std::unique_ptr<Sparsifier> select_;
  ThreadPool pool_{1};
  Workspace workspace_;
  SelectCounters counters_;
  SparseSums found_;       // selected of `accumulated`
  SparseSums candidates_;  // with what has arrived
  SparseSums rest_;
  SparseSums merged_;
};

// Holds one rank's exchange of SparDL: its place, its memory, and bundles of blocks as messages.

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
