// Solves for the buffers with which the last exchange ends earliest.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace sparfuse {

// Seconds of the exchange of tensors [first, last), first < last.
using SecondsOfTensors = std::function<double(std::size_t first, std::size_t last)>;

// What is known of exchanges of more tensors: for i < first,
//   exchange(i, last) >= exchange(first, last) + seconds[first] - seconds[i] - fall.
struct ExchangeGrowth {
  std::span<const double> seconds;  // [tensors + 1] never falling; all 0: they are no shorter
  double fall = 0;                  // infinity: nothing is known
};

// [buffers] how many tensors each holds: of all partitions, one whose last exchange ends earliest
// (to a part in 1e9), and of those the one with the fewest buffers. An exchange begins when its
// tensors are ready and the one before has ended. With e(u, j) the earliest end of u exchanges that
// hold the first j tensors together,
//   e(u, j) = min over i < j of max(e(u - 1, i), ready(j)) + exchange(i, j),
// because an exchange that can begin earlier never ends later. Of equal i, the first.
//
//   ready  [tensors + 1] when the first j tensors are ready: 0 for none
//
// Beyond 20,000 tensors, of i that are equal to a part in 1e13 any. Cost: for each u, tensors *
// log(tensors), up to tensors^2 where nothing is known of the growth; and up to 20,000 tensors the
// number of i that are equal. 36 bytes for each of u and j. Pure.
std::vector<std::size_t> EarliestBuffers(std::span<const double> ready,
                                         const SecondsOfTensors& exchange,
                                         const ExchangeGrowth& growth);

}  // namespace sparfuse
