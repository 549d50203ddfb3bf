#include "core/transport/world/clocks.hpp"

#include <algorithm>
#include <chrono>

namespace sparfuse {
namespace {

std::span<std::byte> BytesOf(double& value) { return std::as_writable_bytes(std::span(&value, 1)); }

}  // namespace

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Task CompareClocks(Communicator& group, std::span<const int> ranks, int rounds, int tag,
                   const ClockSource& clock, ClockReading& reading) {
  Communicator& world = group.host();
  reading = {clock(), 0, 0};
  double shown = 0;
  if (world.rank() == 0) {
    for (const int rank : ranks) {
      for (int round = 0; round < rounds; ++round) {
        co_await Complete(world.Irecv(rank, tag, BytesOf(shown)));
        shown = clock();
        co_await Complete(world.Isend(rank, tag, BytesOf(shown)));
      }
    }
    co_return;
  }
  if (std::ranges::find(ranks, world.rank()) == ranks.end()) co_return;
  for (int round = 0; round < rounds; ++round) {
    double asked = clock();
    // Posted before the question, so that the answer finds its place.
    auto answer = world.Irecv(0, tag, BytesOf(shown));
    co_await Complete(world.Isend(0, tag, BytesOf(asked)), std::move(answer));
    const double answered = clock();
    const double uncertainty = (answered - asked) / 2;
    if (round > 0 && uncertainty >= reading.uncertainty_seconds) continue;
    const double middle = asked + uncertainty;
    reading = {middle, shown - middle, uncertainty};
  }
}

}  // namespace sparfuse
