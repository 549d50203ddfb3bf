#include "harness/worker/fingerprint/pairs.hpp"

#include <chrono>

#include "core/base/clock.hpp"
#include "harness/worker/profiling/ring_rounds.hpp"
#include "harness/worker/rank/timing.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::size_t kSmallBytes = 8;
constexpr std::size_t kLargeBytes = 4u << 20;
constexpr int kSmallRounds = 20;
constexpr int kLargeRounds = 2;

Task Nothing() { co_return; }

Device WhereMessagesLie(const Rank& rank) {
  Device device;
  rank.loop.RunBlocking([&device](Communicator& world) {
    device = world.stream().device;
    return Nothing();
  });
  return device;
}

// Seconds a round, from when both are there.
Task TimedRounds(Communicator& world, RingNeighbours pair, std::span<std::byte> out,
                 std::span<std::byte> in, int rounds, double& seconds) {
  co_await RingRounds(world, pair, out.first(kSmallBytes), in.first(kSmallBytes), 1);
  const auto begin = std::chrono::steady_clock::now();
  co_await RingRounds(world, pair, out, in, rounds);
  seconds = SecondsSince(begin) / rounds;
}

}  // namespace

PairLinks::PairLinks(const Rank& rank)
    : rank_(rank),
      phases_(PhasesOf({rank.size(), rank.config.ranks_per_node})),
      out_(kLargeBytes, WhereMessagesLie(rank)),
      in_(kLargeBytes, out_.device()) {}

std::optional<RankPair> PairLinks::Own(std::size_t phase) const {
  for (const RankPair& pair : phases_[phase]) {
    if (pair.lower == rank_.rank() || pair.upper == rank_.rank()) return pair;
  }
  return std::nullopt;
}

std::optional<PairSample> PairLinks::Measure(std::size_t phase) {
  rank_.Synchronise();
  const auto pair = Own(phase);
  if (!pair) return std::nullopt;
  const int other = pair->lower == rank_.rank() ? pair->upper : pair->lower;
  const auto exchange = [&](std::size_t bytes, int rounds) {
    double seconds = 0;
    rank_.loop.RunBlocking([&](Communicator& world) {
      return TimedRounds(world, {other, other}, {out_.data(), bytes}, {in_.data(), bytes}, rounds,
                         seconds);
    });
    return seconds;
  };
  const double small = exchange(kSmallBytes, kSmallRounds);
  const double large = exchange(kLargeBytes, kLargeRounds);
  if (large <= small) return std::nullopt;
  return PairSample{small, 8e-9 * static_cast<double>(kLargeBytes - kSmallBytes) / (large - small)};
}

}  // namespace sparfuse::harness
