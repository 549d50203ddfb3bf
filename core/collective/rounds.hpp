// Describes what a collective sends and computes: rounds of messages, and the sizes that they
// follow from. Makes rounds of single messages, and of what each rank sends altogether.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/transport/topology.hpp"

namespace sparfuse {

// What ranks do with elements between messages, each with a processor of its own.
enum class Work : std::uint8_t {
  kAdd,       // a float added to another that lies at the same place
  kMerge,     // an element with index read while sorted lists are summed, or scattered into a range
  kSelect,    // an element looked at to find the largest
  kHash,      // an element put where a hash of its index says
  kMultiply,  // a multiplication and addition of a product of matrices
  kToHost,    // a word of four bytes copied from a device to its host
  kToDevice,  // and back
};
inline constexpr std::size_t kWorkKinds = 7;
using WorkByKind = std::array<std::uint64_t, kWorkKinds>;

// A phase in which every rank does the same kind of step `repeat` times, one after another.
struct Round {
  std::uint32_t repeat = 1;
  std::uint32_t messages = 1;  // sent by the busiest rank in one repetition; 0: it only works
  std::uint64_t bytes = 0;     // sum over the repetitions of max over ranks of bytes in or out
  LinkClass link = LinkClass::kInterNode;
  // Where the ranks of a node send over its network side by side: sum over the repetitions of max
  // over nodes of bytes in or out. 0: no more than `bytes`, as around a ring.
  std::uint64_t node_bytes = 0;
  // Of a round between nodes in which ranks of a node also send to one another: sum over the
  // repetitions of max over ranks of bytes in or out on the links within nodes. A repetition ends
  // with the slower of the two.
  std::uint64_t within_bytes = 0;
  // Of the repetitions, those that start up as a hop within a node does: what goes around a ring
  // crosses from node to node only now and then.
  std::uint32_t within_starts = 0;
  // Elements that the busiest rank works on, all repetitions.
  WorkByKind work{};

  std::uint64_t& operator[](Work kind) { return work[static_cast<std::size_t>(kind)]; }
  std::uint64_t operator[](Work kind) const { return work[static_cast<std::size_t>(kind)]; }
};

struct RoundPlan {
  std::vector<Round> rounds;
  std::vector<Traffic> per_rank;  // exact totals, [ranks]
  // Elements that every rank applies, where that is a sum. Nothing: the payloads of all ranks.
  std::optional<std::uint64_t> sums;
  bool dense_sums = false;            // they are a dense range
  bool on_host = false;               // work is the host's, also where gradients lie on a device
  std::vector<std::uint64_t> served;  // ExchangeBuffers::served of each rank, or empty
};

// How a cluster's library gathers payloads: around a ring through all ranks, or in two levels
// (algorithms.hpp).
enum class AllGatherBy : std::uint8_t { kRing, kTwoLevel };

// One tensor of what is exchanged.
struct ExchangedTensor {
  std::uint32_t id = 0;   // position in ready order
  std::size_t begin = 0;  // in the range
  std::size_t numel = 0;
  std::span<const std::int64_t> shape;
};

// What is exchanged. Equal on all ranks.
struct ExchangeShape {
  std::size_t elements = 0;  // of the range, gaps included: indices are below it
  std::size_t kept = 0;      // k: elements that a rank is to select from it
  std::uint64_t step = 0;
  // In the order of the range, for collectives that look at tensors (CollectiveTraits::by_tensor).
  std::span<const ExchangedTensor> tensors = {};
  std::size_t owner = 0;  // of the first part, or of all that is given, where ranks own parts

  double density() const {
    return elements == 0 ? 0.0 : static_cast<double>(kept) / static_cast<double>(elements);
  }
};

// What rounds follow from: recorded by a run, or expected by a model.
struct ExchangeSizes {
  ExchangeShape shape;
  std::vector<std::uint64_t> payload_bytes;  // [ranks]; dense: the whole buffer, equal on all
  // [ranks] the few words that each rank notes (ExchangeBuffers::seen), or empty for collectives
  // that note nothing. What they mean is the collective's own.
  std::vector<std::vector<std::uint64_t>> seen;
  // [ranks] of exchanges whose parts have an owner each: what each rank gives of every part.
  std::vector<std::vector<std::uint64_t>> part_bytes = {};
};

// Sizes for collectives that look at nothing but payloads.
inline ExchangeSizes SizesOf(std::vector<std::uint64_t> payload_bytes) {
  return {{}, std::move(payload_bytes), {}};
}

// Appends to `plan` the rounds in which ranks send to `bucket` others at a time, and counts them in
// plan.per_rank. None for one rank.
//
//   of_rank  [topology.ranks] what each rank sends and receives in all of them. What goes between
//            two ranks is not known: a rank is taken to send as much to each other one.
void AddDirectRounds(std::span<const Traffic> of_rank, std::size_t bucket, const Topology& topology,
                     RoundPlan& plan);

struct RankMessage {
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;
};

// Appends to `plan` the round in which these messages, one at least, travel at once, and counts
// them in plan.per_rank, which has [topology.ranks] elements. The round's link is the slowest that
// one of them takes. The reference holds until the next round is appended. Cost: O(messages +
// ranks).
Round& AddRound(std::span<const RankMessage> messages, const Topology& topology, RoundPlan& plan);

}  // namespace sparfuse
