// Divides a range among the ranks of a team, says which blocks travel when, how many elements are
// kept, and which form SparDL takes.
//
// Holds a rank's state of each block while sums travel: the arrived sums, the elements kept when
// the rank cuts the block, and the elements that finally return to its residual.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/options.hpp"
#include "core/base/thread_pool.hpp"
#include "core/collective/collective.hpp"
#include "core/collective/rounds.hpp"
#include "core/payload/sums.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse::baselines {

CollectiveDescriptor SpardlCollective();

// A range in `count` blocks of m = ceil(n / count) elements, one for each rank of a team. The last
// blocks are shorter, or empty. Runs of blocks wrap around: block 0 follows the last block.
class SpardlBlocks {
 public:
  // Precondition: count >= 1.
  SpardlBlocks(const ExchangeShape& shape, std::size_t count);

  std::size_t count() const { return count_; }
  std::size_t begin(std::size_t block) const { return std::min(elements_, block * width_); }
  std::size_t end(std::size_t block) const { return begin(block + 1); }
  std::size_t size(std::size_t block) const { return end(block) - begin(block); }
  // The largest number of a block's sums that are kept: k_b = max(1, trunc(m * k / n)), or the
  // block's size if that is smaller.
  std::size_t kept(std::size_t block) const { return std::min(kept_, size(block)); }
  // The sum of kept() over `blocks` blocks from `first` on. Preconditions: first < count,
  // blocks <= count.
  std::size_t KeptOf(std::size_t first, std::size_t blocks) const;

  // Calls visit(block) for each of `blocks` blocks from `first` on, in the order of their elements.
  template <class Visit>
  void ForEach(std::size_t first, std::size_t blocks, const Visit& visit) const {
    const std::size_t last = first + blocks;
    for (std::size_t b = 0; b + count_ < last; ++b) visit(b);
    for (std::size_t b = first; b < std::min(last, count_); ++b) visit(b);
  }

 private:
  std::size_t KeptBelow(std::size_t block) const;

  std::size_t elements_;
  std::size_t count_;
  std::size_t width_;
  std::size_t kept_;
};

// One step of all ranks of a team: rank w and the rank `gap` places after it exchange `blocks`
// blocks.
struct SpardlStep {
  std::size_t gap = 0;
  std::size_t blocks = 0;
};

// Spar-Reduce-Scatter: rank w sends the blocks from w + gap on to rank w + gap, and receives the
// blocks from w on from rank w - gap. Over all steps, every rank sends each block but its own once;
// rank w ends with the sum over all ranks of block w. ceil(log2 ranks) steps; none for one rank.
std::vector<SpardlStep> SpardlScatterSteps(std::size_t ranks);

// Bruck's all-gather: rank w sends the blocks from w on to rank w - gap, and receives the blocks
// from w + gap on from rank w + gap. ceil(log2 ranks) steps.
std::vector<SpardlStep> BruckSteps(std::size_t ranks);

// Adapts h, the number of elements of its block that a rank sends to other teams in B-SAG (SparDL,
// section III: compression ratio adjustment). The d teams' lists of h elements should have k_b
// different indices together. In each step h goes up if they have at most k_b, and down if they
// have more. The change doubles after every second step in one direction, and halves after a turn.
// Ranks that see equal counts have equal h.
class SpardlCount {
 public:
  // h of the next exchange by `teams` teams of a block with `kept` kept elements. It begins with
  // max(1, trunc(kept / teams)) and stays between that and kept. 0 for an empty block.
  std::size_t Next(std::size_t kept, std::size_t teams);
  // Call after the exchange: the lists had `merged` different indices.
  void Learn(std::size_t merged, std::size_t kept, std::size_t teams);

 private:
  std::int64_t count_ = 0;  // 0: not begun
  std::int64_t step_ = 0;
  bool again_ = false;  // the last step went in this direction, too
};

// The form of SparDL that a collective's options choose.
struct SpardlForm {
  std::size_t teams = 1;
  bool lazy = true;       // blocks are cut from the accumulated values, else from a payload
  bool doubling = false;  // recursive doubling of teams (R-SAG), else lists are gathered (B-SAG)
  bool serial_blocks = false;

  bool gathers_lists() const { return teams > 1 && !doubling; }
  // Whether sizes depend on values; the other forms send k_b elements a block.
  bool notes_sizes() const { return !lazy || gathers_lists(); }
};

std::vector<OptionSpec> SpardlOptions();
// The form of resolved options.
SpardlForm FormOf(const Options& options);
// The reason why a form cannot run on these ranks, or "".
std::string SpardlRefuses(const SpardlForm& form, const Topology& topology);

// A block's content on a rank is the rank's own part plus the arrived sums. Global residual
// collection: at an index that is applied in the end, the rank keeps the content that it has not
// passed on; at any other index it keeps its own part. Over all ranks nothing is lost: a sum
// dropped on the way at an index that is not applied consists of own parts, which ranks keep.
//
// Nothing in this class waits. One exchange at a time uses it, and the next reuses its memory.
class SpardlSums {
 public:
  SpardlSums();

  // Begins an exchange. The own part of a block is its range of `accumulated`, dense and finite. It
  // stays in the residual; returned elements are changes relative to it.
  void BeginLazy(const SpardlBlocks& blocks, std::span<const float> accumulated,
                 std::uint64_t step);
  // Begins an exchange in which the own part is the block's elements of a payload, which is in no
  // residual.
  void BeginEager(const SpardlBlocks& blocks, const SparsePayload& own);

  // Adds another rank's sums to a block.
  void Add(std::size_t block, const SparsePayload& arrived);
  // Call once a block, when no more sums arrive: selects its `most` largest elements, to be passed
  // on. The lazy form selects exactly `most`, zeros included, or all if the block has fewer.
  void Cut(std::size_t block, std::size_t most);
  SparsePayload cut(std::size_t block) const { return parts_[block].cut.view(); }
  // Keeps sums of several ranks that were dropped after the cut; this rank keeps them for all.
  void Keep(std::size_t block, const SparsePayload& dropped);

  // Appends the elements that return to the residual if `applied` is applied of the block.
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

// The state of one range: the number of elements that teams exchange, and memory that the next
// exchange of the range reuses.
struct SpardlState final : CollectiveState {
  SpardlSums sums;
  SpardlCount count;
  std::vector<std::byte> out, in;  // of a step
  std::vector<std::byte> lists;    // of all teams
  SparseSums merged, kept, rest, returned;
};

// Grows `memory` to at least the bytes of `elements` elements, and returns it.
std::span<std::byte> RoomFor(std::size_t elements, std::vector<std::byte>& memory);

// Joins payloads into one, in their order. Precondition: `out` has room. Returns the written bytes.
std::span<std::byte> Join(std::span<const SparsePayload> parts, std::span<std::byte> out);

// One rank's exchange of SparDL: its place, its memory, and bundles of blocks as messages.
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

  // Places and teams wrap around.
  std::size_t Around(std::size_t place) const { return place % blocks.count(); }
  int RankAt(std::size_t at_team, std::size_t place) const {
    return static_cast<int>(at_team % teams * blocks.count() + Around(place));
  }

  // Packs the payloads of `count` blocks from `first` on into state.out, in the order of elements.
  std::span<const std::byte> Pack(std::span<const SparsePayload> by_block, std::size_t first,
                                  std::size_t count) const;
  // Unpacks the same blocks of such a message to by_block. Throws Error{kComm} if the message has
  // elements outside these blocks.
  void Unpack(std::span<const std::byte> message, std::size_t first, std::size_t count,
              std::span<SparsePayload> by_block) const;
};

}  // namespace sparfuse::baselines
