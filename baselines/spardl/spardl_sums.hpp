// Divides a range among the ranks of a team, says which blocks travel when, how many elements are
// kept, and which form SparDL takes.
//
// Holds what a rank knows of each block while sums travel: what has arrived of it, what the rank
// keeps when it cuts the block, and what goes back to its residual in the end.
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

// A range in `count` blocks of m = ceil(n / count) elements, one for each rank of a team. The last
// ones are shorter, or empty. Runs of blocks go round: block 0 follows the last one.
class SpardlBlocks {
 public:
  // Precondition: count >= 1.
  SpardlBlocks(const ExchangeShape& shape, std::size_t count);

  std::size_t count() const { return count_; }
  std::size_t begin(std::size_t block) const { return std::min(elements_, block * width_); }
  std::size_t end(std::size_t block) const { return begin(block + 1); }
  std::size_t size(std::size_t block) const { return end(block) - begin(block); }
  // k_b = max(1, trunc(m * k / n)), the most that is kept of a block's sums, but for blocks with
  // fewer elements.
  std::size_t kept(std::size_t block) const { return std::min(kept_, size(block)); }
  // The same of `blocks` blocks from `first` on. Precondition: first < count, blocks <= count.
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

// One step of all ranks of a team: rank w and the rank `gap` places on exchange `blocks` blocks.
struct SpardlStep {
  std::size_t gap = 0;
  std::size_t blocks = 0;
};

// Spar-Reduce-Scatter: rank w sends the blocks from w + gap on to rank w + gap and receives those
// from w on from rank w - gap. Together every rank sends each block but its own, once, and block w
// has all ranks' sums on rank w in the end. ceil(log2 ranks) steps; none for one rank.
std::vector<SpardlStep> SpardlScatterSteps(std::size_t ranks);

// Bruck's all-gather: rank w sends the blocks from w on to rank w - gap and receives those from
// w + gap on from rank w + gap. ceil(log2 ranks) steps.
std::vector<SpardlStep> BruckSteps(std::size_t ranks);

// Adapts how many elements a rank tells the other teams of its block.

// h of B-SAG (SparDL, section III: compression ratio adjustment): the d teams' lists of h elements
// are to have k_b different indices together. From step to step h goes up while they have no more
// than that and down while they have more, by twice as much after every second step in one
// direction, by half as much after a turn. Ranks that see equal counts have equal h.
class SpardlCount {
 public:
  // h of the next exchange of a block of which `kept` elements are kept, by `teams` teams: from
  // max(1, trunc(kept / teams)), with which it begins, to kept. 0 for an empty block.
  std::size_t Next(std::size_t kept, std::size_t teams);
  // After it: the lists had `merged` different indices.
  void Learn(std::size_t merged, std::size_t kept, std::size_t teams);

 private:
  std::int64_t count_ = 0;  // 0: not begun
  std::int64_t step_ = 0;
  bool again_ = false;  // the last step went in this direction, too
};

// Reads the forms of SparDL from a collective's options.

struct SpardlForm {
  std::size_t teams = 1;
  bool lazy = true;       // blocks are cut from what has accumulated, else from a payload
  bool doubling = false;  // of teams (R-SAG), else their lists are gathered (B-SAG)
  bool serial_blocks = false;

  bool gathers_lists() const { return teams > 1 && !doubling; }
  // Sizes depend on values: the other forms send k_b elements a block.
  bool notes_sizes() const { return !lazy || gathers_lists(); }
};

std::vector<OptionSpec> SpardlOptions();
// Of resolved options.
SpardlForm FormOf(const Options& options);
// Why a form cannot run on these ranks, or "".
std::string SpardlRefuses(const SpardlForm& form, const Topology& topology);

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
