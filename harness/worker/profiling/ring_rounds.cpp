#include "harness/worker/profiling/ring_rounds.hpp"

namespace sparfuse::harness {

RingNeighbours InRing(int rank, int first, int count) {
  return {first + (rank - first + count - 1) % count, first + (rank - first + 1) % count};
}

std::unique_ptr<Request> NativeStep(Communicator& world, RingNeighbours ring,
                                    std::span<std::byte> out, std::span<std::byte> in,
                                    int messages) {
  if (out.empty()) return world.NativeRingStep(ring, {out.data(), 1}, {in.data(), 1}, messages);
  return world.NativeRingStep(ring, out, in, messages);
}

Task RingRounds(Communicator& world, RingNeighbours ring, std::span<std::byte> out,
                std::span<std::byte> in, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    if (auto step = NativeStep(world, ring, out, in, 1)) {
      co_await Complete(std::move(step));
    } else {
      co_await Complete(world.Irecv(ring.previous, kRingTag, in),
                        world.Isend(ring.next, kRingTag, out));
    }
  }
}

}  // namespace sparfuse::harness
