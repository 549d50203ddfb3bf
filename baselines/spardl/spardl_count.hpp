// Adapts how many elements a rank tells the other teams of its block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sparfuse::baselines {

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

}  // namespace sparfuse::baselines
