// Says how trials of one launch take turns: how many steps at once, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace sparfuse::harness {

// std::shuffle differs between standard libraries; an order that a seed names must not.
template <class T>
void Shuffle(std::vector<T>& values, std::mt19937_64& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random() % i]);
}

// The measured steps of each round of a trial that takes `steps` of them in turn with others: at
// most three, since a burst that lasts longer meets the others too, and as evenly as they divide.
// Each round begins with a step more, which is discarded: caches hold another trial's data.
std::vector<int> StepsOfRounds(int steps, int every = 1);

// The positions [0, trials) in the order of their turns, for each of `rounds`; equal for equal
// seeds.
std::vector<std::vector<std::size_t>> OrderOfRounds(std::size_t trials, std::size_t rounds,
                                                    std::uint64_t seed);

}  // namespace sparfuse::harness
