// Divides a range among the ranks of a team, says which blocks travel when, how many elements are
// kept, and which form SparDL takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/options.hpp"
#include "core/collective/rounds.hpp"
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

}  // namespace sparfuse::baselines
