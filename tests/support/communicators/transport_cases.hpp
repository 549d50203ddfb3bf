// Holds the common parts of the transports' tests.
#pragma once

#include <cstddef>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/collective/collective.hpp"
#include "core/transport/progress.hpp"

namespace sparfuse::testing {

template <class T>
std::span<const std::byte> Bytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> Room(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// The failure of `body` as text, with its kind in front; "none" if it returns.
inline std::string FailureOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return std::string(FailureKindName(error.kind())) + ": " + error.what();
  }
  return "none";
}

// The failure of an all-reduce of a thousand elements over the loop's ranks.
inline std::string FailureOfAllReduce(ProgressLoop& loop) {
  std::vector<float> data(1000);
  ExchangeBuffers buffers;
  buffers.dense = data;
  return FailureOf([&] {
    loop.RunBlocking([&](Communicator& world) {
      return CoreCollective("ring-allreduce")->Run(world, buffers, 0);
    });
  });
}

// The elements of each rank, for cases in which they differ.
inline std::vector<std::vector<std::size_t>> UnequalSizes(std::size_t ranks) {
  std::vector<std::size_t> growing(ranks);
  std::iota(growing.begin(), growing.end(), std::size_t{0});
  std::vector<std::size_t> one_has_all(ranks - 1, 0);
  one_has_all.push_back(5000);
  std::vector<std::size_t> one_has_none{0};
  one_has_none.resize(ranks, 321);
  return {growing, one_has_all, one_has_none};
}

}  // namespace sparfuse::testing
