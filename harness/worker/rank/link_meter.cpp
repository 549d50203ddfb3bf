#include "harness/worker/rank/link_meter.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/transport/sleep.hpp"
#include "core/transport/task.hpp"
#include "core/transport/topology.hpp"

namespace sparfuse::harness {
namespace {

constexpr int kMeterTag = 17;
constexpr int kMeterRounds = 3;
constexpr double kTransferSeconds = 0.04;
constexpr double kLeastTransferSeconds = 0.005;  // waking up late by 0.25 ms would be 5 % of it
constexpr double kMeterSeconds = 0.14;
constexpr double kMostBytes = 64 << 20;  // of all ranks' messages

// The ranks that send to this one and that it sends to; none where it takes no part.
struct Neighbours {
  int from = -1, to = -1;
  bool any() const { return to >= 0; }
};

Neighbours NeighboursOf(const Topology& topology, int rank) {
  const int ranks = topology.ranks;
  if (topology.nodes() == 1) return {(rank + ranks - 1) % ranks, (rank + 1) % ranks};
  if (topology.LocalRankOf(rank) != 0) return {};
  const int nodes = topology.nodes(), node = topology.NodeOf(rank);
  const auto first_of = [&](int each) { return each % nodes * topology.ranks_per_node; };
  return {first_of(node + nodes - 1), first_of(node + 1)};
}

// The message carries the time at which it was sent: ranks of an emulated link share a host's
// clock, and begin a round at different times.
Task PassOn(Communicator& world, Neighbours neighbours, std::span<std::byte> out,
            std::span<std::byte> in, std::int64_t& nanoseconds) {
  auto receive = world.Irecv(neighbours.from, kMeterTag, in);
  std::int64_t begun = MonotonicNanoseconds();
  std::memcpy(out.data(), &begun, sizeof begun);
  auto send = world.Isend(neighbours.to, kMeterTag, out);
  co_await Complete(std::move(receive));
  const std::int64_t ended = MonotonicNanoseconds();
  std::memcpy(&begun, in.data(), sizeof begun);
  nanoseconds = ended - begun;
  co_await Complete(std::move(send));
}

}  // namespace

bool LinkMeter::HasLink() const { return rank_.config.link.has_value() && rank_.size() > 1; }

double LinkMeter::LabelGbps() const {
  const LinkShape& link = *rank_.config.link;
  return rank_.size() > rank_.config.ranks_per_node ? link.gbps : link.intra_node_gbps;
}

std::optional<double> LinkMeter::Gbps() const {
  const Topology topology{rank_.size(), rank_.config.ranks_per_node};
  const LinkShape& link = *rank_.config.link;
  const double alpha_seconds = 1e-6 * (topology.nodes() > 1 ? link.alpha_us : link.intra_node_us);
  const double bytes_per_second = 1e9 / 8 * LabelGbps();
  const int senders = topology.nodes() > 1 ? topology.nodes() : topology.ranks;
  const double bytes = std::min(bytes_per_second * kTransferSeconds, kMostBytes / senders);
  const double transfer_seconds = bytes / bytes_per_second;
  const int rounds =
      std::min(kMeterRounds, static_cast<int>(kMeterSeconds / (alpha_seconds + transfer_seconds)));
  if (rounds < 1 || transfer_seconds < kLeastTransferSeconds) return std::nullopt;

  const Neighbours neighbours = NeighboursOf(topology, rank_.rank());
  const std::size_t size = std::max(sizeof(std::int64_t), static_cast<std::size_t>(bytes));
  std::vector<std::byte> out(neighbours.any() ? size : 0), in(out.size());
  std::int64_t least = 0;
  for (int round = 0; round < rounds; ++round) {
    std::int64_t nanoseconds = 0;
    rank_.Synchronise();
    if (neighbours.any()) {
      rank_.loop.RunBlocking(
          [&](Communicator& world) { return PassOn(world, neighbours, out, in, nanoseconds); });
    }
    const std::int64_t slowest = rank_.Max({nanoseconds})[0];
    least = round == 0 ? slowest : std::min(least, slowest);
  }
  const double on_the_way = 1e-9 * static_cast<double>(least) - alpha_seconds;
  if (on_the_way <= 0) return std::nullopt;
  return 8e-9 * static_cast<double>(size) / on_the_way;
}

}  // namespace sparfuse::harness
