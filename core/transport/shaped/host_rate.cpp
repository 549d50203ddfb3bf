#include "core/transport/shaped/host_rate.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/transport/group.hpp"
#include "core/transport/sleep.hpp"

namespace sparfuse {
namespace {

constexpr int kTag = 0;
constexpr int kTries = 40;
constexpr std::size_t kBytes = 2u << 20;  // long against what it takes to look at a message

// The least of all ranks' values; nobody is behind anybody who has not come here.
double LeastOf(Communicator& world, double own, std::chrono::milliseconds deadline) {
  std::vector<double> values(static_cast<std::size_t>(world.size()), own);
  std::vector<std::unique_ptr<Request>> sends;
  std::vector<std::unique_ptr<Request>> receives;
  for (int peer = 0; peer < world.size(); ++peer) {
    if (peer == world.rank()) continue;
    const auto theirs = std::span(values).subspan(static_cast<std::size_t>(peer), 1);
    receives.push_back(world.Irecv(peer, kTag, std::as_writable_bytes(theirs)));
    sends.push_back(world.Isend(peer, kTag, std::as_bytes(std::span(&own, 1))));
  }
  AwaitPeers(world, receives, sends, deadline, "the host's rate");
  return std::ranges::min(values);
}

}  // namespace

double HostGbps(Communicator& world, double wanted, std::chrono::milliseconds deadline) {
  if (world.size() == 1) return std::numeric_limits<double>::infinity();
  const std::vector<std::byte> out(kBytes);
  std::vector<std::byte> in(kBytes);
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  double best = 0, least = LeastOf(world, 0, deadline);
  for (int i = 0; i < kTries && least < wanted; ++i) {
    const std::int64_t start = MonotonicNanoseconds();
    std::vector<std::unique_ptr<Request>> receives;
    std::vector<std::unique_ptr<Request>> sends;
    receives.push_back(world.Irecv(previous, kTag, in));
    sends.push_back(world.Isend(next, kTag, out));
    AwaitPeers(world, receives, sends, deadline, "the host's rate");
    const auto nanoseconds = static_cast<double>(MonotonicNanoseconds() - start);
    best = std::max(best, 8.0 * kBytes / nanoseconds);
    least = LeastOf(world, best, deadline);
  }
  return least;
}

}  // namespace sparfuse
