#include "harness/run/plan/turns.hpp"

#include <algorithm>
#include <numeric>

namespace sparfuse::harness {

std::vector<int> StepsOfRounds(int steps, int every) {
  constexpr int kMostAtOnce = 3;  // steps
  const int windows = steps / every;
  const int most = std::max(1, kMostAtOnce / every);
  const int rounds = (windows + most - 1) / most;
  std::vector<int> of_rounds;
  for (int round = 0; round < rounds; ++round) {
    of_rounds.push_back(every * (windows / rounds + (round < windows % rounds ? 1 : 0)));
  }
  return of_rounds;
}

std::vector<std::vector<std::size_t>> OrderOfRounds(std::size_t trials, std::size_t rounds,
                                                    std::uint64_t seed) {
  std::vector<std::size_t> order(trials);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  std::vector<std::vector<std::size_t>> orders;
  for (std::size_t round = 0; round < rounds; ++round) {
    Shuffle(order, random);
    orders.push_back(order);
  }
  return orders;
}

}  // namespace sparfuse::harness
