// Describes the messages and the work of a collective: rounds of messages, and the sizes that
// determine them. Makes rounds from single messages, and from the total traffic of each rank.
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

// Kinds of work that ranks do on elements between messages. Each rank has its own processor.
enum class Work : std::uint8_t {
  kAdd,       // adds a float to another at the same position
  kMerge,     // reads an indexed element to sum sorted lists, or scatters it into a range
  kSelect,    // examines an element to find the largest ones
  kHash,      // places an element by a hash of its index
  kMultiply,  // multiplies and adds, in a matrix product
  kToHost,    // copies a word of four bytes from a device to its host
  kToDevice,  // copies such a word back
};
inline constexpr std::size_t kWorkKinds = 7;
using WorkByKind = std::array<std::uint64_t, kWorkKinds>;

// The bytes that are sent, or those that are received if they are more.
std::uint64_t BusierWay(const Traffic& of);

// A phase in which every rank does the same kind of step `repeat` times, one after another.
struct Round {
  std::uint32_t repeat = 1;
  std::uint32_t messages = 1;  // sent by the busiest rank in one repetition; 0: it only works
  std::uint64_t bytes = 0;     // sum over the repetitions of max over ranks of bytes in or out
  LinkClass link = LinkClass::kInterNode;
  // For rounds in which the ranks of a node share its network: sum over the repetitions of max over
  // nodes of bytes in or out. 0: no more than `bytes`, as around a ring.
  std::uint64_t node_bytes = 0;
  // For a round between nodes in which ranks of a node also send to one another: sum over the
  // repetitions of max over ranks of bytes in or out on the links within nodes. A repetition ends
  // when the slower link is done.
  std::uint64_t within_bytes = 0;
  // The number of repetitions with the start-up time of a hop within a node: a message around a
  // ring only sometimes crosses from node to node.
  std::uint32_t within_starts = 0;
  // Elements that the busiest rank works on in all repetitions.
  WorkByKind work{};

  std::uint64_t& operator[](Work kind) { return work[static_cast<std::size_t>(kind)]; }
  std::uint64_t operator[](Work kind) const { return work[static_cast<std::size_t>(kind)]; }
};

struct RoundPlan {
  std::vector<Round> rounds;
  std::vector<Traffic> per_rank;  // exact totals, [ranks]
  // Elements that every rank applies if they are a sum. Nothing: every rank applies the payloads of
  // all ranks.
  std::optional<std::uint64_t> sums;
  bool dense_sums = false;            // the sums are a dense range
  bool on_host = false;               // the host does the work, even if gradients lie on a device
  std::vector<std::uint64_t> served;  // ExchangeBuffers::served of each rank, or empty
};

// How a cluster's library gathers payloads: around a ring through all ranks, or in two levels
// (algorithms.hpp).
enum class AllGatherBy : std::uint8_t { kRing, kTwoLevel };

// One tensor of an exchange.
struct ExchangedTensor {
  std::uint32_t id = 0;   // position in ready order
  std::size_t begin = 0;  // in the range
  std::size_t numel = 0;
  std::span<const std::int64_t> shape;
};

// The range of an exchange. Equal on all ranks.
struct ExchangeShape {
  std::size_t elements = 0;  // of the range, gaps included: every index is below this
  std::size_t kept = 0;      // k: elements that a rank is to select from the range
  std::uint64_t step = 0;
  // In the order of the range, for collectives that look at tensors (CollectiveTraits::by_tensor).
  std::span<const ExchangedTensor> tensors = {};
  std::size_t owner = 0;  // of the first part, or of the whole range, if ranks own parts

  double density() const {
    return elements == 0 ? 0.0 : static_cast<double>(kept) / static_cast<double>(elements);
  }
};

// The range's tensors. A range without tensors counts as one that is no matrix.
std::vector<ExchangedTensor> TensorsOf(const ExchangeShape& shape);

// The sizes that determine rounds: recorded by a run, or expected by a model.
struct ExchangeSizes {
  ExchangeShape shape;
  std::vector<std::uint64_t> payload_bytes;  // [ranks]; dense: the whole buffer, equal on all
  // [ranks] the few words that each rank notes (ExchangeBuffers::seen), or empty for collectives
  // that note nothing. Each collective defines their meaning.
  std::vector<std::vector<std::uint64_t>> seen;
  // [ranks] for exchanges in which each part has an owner: the bytes of each rank for every part.
  std::vector<std::vector<std::uint64_t>> part_bytes = {};
};

// Makes the sizes for collectives that depend on payloads alone.
inline ExchangeSizes SizesOf(std::vector<std::uint64_t> payload_bytes) {
  return {{}, std::move(payload_bytes), {}};
}

// Appends to `plan` the rounds in which ranks send to `bucket` others at a time, and counts them in
// plan.per_rank. None for one rank.
//
//   of_rank  [topology.ranks] the traffic of each rank in all of these rounds. The traffic between
//            two ranks is not known: each rank is assumed to send equally much to every other rank.
void AddDirectRounds(std::span<const Traffic> of_rank, std::size_t bucket, const Topology& topology,
                     RoundPlan& plan);

struct RankMessage {
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;
};

// Appends to `plan` the round in which these messages, at least one, travel at once. Counts them in
// plan.per_rank, which has [topology.ranks] elements. The round's link is the slowest link of its
// messages. The reference holds until the next round is appended. Cost: O(messages + ranks).
Round& AddRound(std::span<const RankMessage> messages, const Topology& topology, RoundPlan& plan);

}  // namespace sparfuse
