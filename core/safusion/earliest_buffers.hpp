// Solves for the buffers that let the last exchange end earliest.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace sparfuse {

// Seconds of the exchange of tensors [first, last), first < last.
using SecondsOfTensors = std::function<double(std::size_t first, std::size_t last)>;

// A lower bound for exchanges that begin at an earlier tensor: for i < first,
//   exchange(i, last) >= exchange(first, last) + seconds[first] - seconds[i] - fall.
struct ExchangeGrowth {
  // [tensors + 1] never falling. All 0: an exchange of more tensors is no shorter.
  std::span<const double> seconds;
  double fall = 0;  // infinity: no bound is known
};

// [buffers] how many tensors each buffer holds, in the partition whose last exchange ends earliest
// (to a part in 1e9); of several such partitions, the one with the fewest buffers. An exchange
// begins when its tensors are ready and the previous exchange has ended. With e(u, j) the earliest
// end of u exchanges that hold the first j tensors together,
//   e(u, j) = min over i < j of max(e(u - 1, i), ready(j)) + exchange(i, j),
// because an exchange that can begin earlier never ends later. Of equal i, the first is taken.
//
//   ready  [tensors + 1] when the first j tensors are ready; 0 for j = 0
//
// Beyond 20,000 tensors, any i may be taken of those equal to a part in 1e13. Cost: for each u,
// tensors * log(tensors), or up to tensors^2 if no bound of the growth is known; up to 20,000
// tensors, also the number of equal i. Takes 36 bytes for each u and j. Pure.
std::vector<std::size_t> EarliestBuffers(std::span<const double> ready,
                                         const SecondsOfTensors& exchange,
                                         const ExchangeGrowth& growth);

}  // namespace sparfuse
