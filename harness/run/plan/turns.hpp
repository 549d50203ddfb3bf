// Divides trials of one launch into turns: the number of steps at once, and the order.
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

// The measured steps of each round of a trial of `steps` that takes turns with others. A round has
// at most three, so that a longer burst of other load meets the other trials too; rounds are as
// even as possible. Each round begins with one more step, which is discarded, because caches still
// hold another trial's data.
std::vector<int> StepsOfRounds(int steps, int every = 1);

// The positions [0, trials) in the order of their turns, for each of `rounds`; equal for equal
// seeds.
std::vector<std::vector<std::size_t>> OrderOfRounds(std::size_t trials, std::size_t rounds,
                                                    std::uint64_t seed);

}  // namespace sparfuse::harness
