// All-reduces floats that are sent in blocks with a scale (core/coding/quantizers/block_codes.hpp).
//
// Source:      G. Wang et al., "ZeRO++: extremely efficient collective communication for giant
//              model training", 2023, section 3.3 (quantised reduce-scatter by all-to-all).
// Deviations:  in one level by default, in two on request (block_allreduce.hpp). The sum is encoded
//              once more and gathered. All ranks, the one that made it too, take the decoded sum.
//              Rounding errors are lost.
#include "core/collective/block_allreduce.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "core/collective/algorithms.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

using CodedBlocks = std::vector<std::vector<std::byte>>;  // [members]

struct Part {
  std::size_t begin = 0, size = 0;  // elements
};

// The parts of the ranks of a node, and each part's shards by node.
class TwoLevels {
 public:
  TwoLevels(std::size_t elements, const Topology& topology, int rank)
      : nodes_(static_cast<std::size_t>(topology.nodes())),
        per_node_(static_cast<std::size_t>(topology.ranks_per_node)),
        node_(static_cast<std::size_t>(topology.NodeOf(rank))),
        place_(static_cast<std::size_t>(topology.LocalRankOf(rank))),
        parts_{elements, per_node_} {}

  std::size_t nodes() const { return nodes_; }
  std::size_t per_node() const { return per_node_; }
  std::size_t node() const { return node_; }
  std::size_t place() const { return place_; }

  Part OfPlace(std::size_t j) const { return {parts_.Begin(j), parts_.Size(j)}; }
  // Returns the shard of part j that node k sums.
  Part OfNode(std::size_t j, std::size_t k) const {
    const Shards shards{parts_.Size(j), nodes_};
    return {parts_.Begin(j) + shards.Begin(k), shards.Size(k)};
  }

  std::vector<int> RanksOfNode() const { return Ranks(per_node_, node_ * per_node_, 1); }
  std::vector<int> RanksOfPlace() const { return Ranks(nodes_, place_, per_node_); }

 private:
  static std::vector<int> Ranks(std::size_t count, std::size_t first, std::size_t apart) {
    std::vector<int> ranks(count);
    for (std::size_t i = 0; i < count; ++i) ranks[i] = static_cast<int>(first + i * apart);
    return ranks;
  }

  std::size_t nodes_, per_node_, node_, place_;
  Shards parts_;
};

// Encodes in the rounding number `turn` of an all-reduce, whose draws differ from the others'.
class Encoder {
 public:
  Encoder(const BlockForm& form, std::size_t elements, std::uint64_t step, int rank, int turn)
      : form_(form),
        stream_(elements, static_cast<std::uint64_t>(rank) << 8 | static_cast<unsigned>(turn),
                step) {}
  // begin: of the values, among all of the all-reduce.
  void operator()(std::size_t begin, std::span<const float> values,
                  std::span<std::byte> out) const {
    if (!form_.stochastic) return EncodeBlocks(form_, values, out);
    const RandomStream own(stream_.key(), begin, 0);
    EncodeBlocks(form_, values, out, &own);
  }

 private:
  const BlockForm& form_;
  RandomStream stream_;
};

// Sums the arrived blocks of a range, in the order of members.
void Add(const BlockForm& form, const CodedBlocks& came, std::span<float> sum) {
  std::vector<float> decoded(sum.size());
  std::ranges::fill(sum, 0.0f);
  for (const auto& each : came) {
    DecodeBlocks(form, each, decoded, "blocks of a member");
    AddInto(decoded, sum);
  }
}

// Sends to[j] to members[j] and receives from[j], which has the expected size, from there. Empty
// blocks are not sent, and this rank, members[own], sends nothing to itself. All arguments outlive
// the task. Throws Error{kComm} naming a rank that sends another number of bytes.
Task ExchangeBlocks(Communicator& communicator, const std::vector<int>& members, std::size_t own,
                    const CodedBlocks& to, CodedBlocks& from, int tag) {
  const std::size_t count = members.size();
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::size_t> expected;
  for (std::size_t step = 1; step < count; ++step) {
    const std::size_t other = (own + count - step) % count;
    if (from[other].empty()) continue;
    requests.push_back(communicator.Irecv(members[other], tag, from[other]));
    expected.push_back(from[other].size());
  }
  for (std::size_t step = 1; step < count; ++step) {
    const std::size_t other = (own + step) % count;
    if (to[other].empty()) continue;
    requests.push_back(communicator.Isend(members[other], tag, to[other]));
  }
  requests = co_await Complete(std::move(requests));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (requests[i]->bytes() == expected[i]) continue;
    SPARFUSE_THROW(kComm, "blocks of rank ", requests[i]->peer(), ": ", requests[i]->bytes(),
                   " bytes; expected ", expected[i]);
  }
}

// Each rank begins with the blocks of its own number, and ends with all.
Task GatherAround(Communicator& communicator, CodedBlocks& blocks, int tag) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  for (std::size_t step = 0; step + 1 < ranks; ++step) {
    const std::size_t passed_on = (rank + ranks - step) % ranks;
    co_await StepAroundRing(communicator, "blocks", blocks[passed_on],
                            blocks[(passed_on + ranks - 1) % ranks], tag);
  }
}

Task RunInOneLevel(const BlockSum& sum, Communicator& communicator, ExchangeBuffers& buffers,
                   std::span<float> data, int tag) {
  const BlockForm& form = sum.form;
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const Shards shards{data.size(), ranks};
  const auto part = [&](std::size_t j) { return data.subspan(shards.Begin(j), shards.Size(j)); };
  const std::size_t own = shards.Size(rank);
  // sent: the payloads to each rank, later the received sums. came: the arrivals.
  CodedBlocks sent(ranks), came(ranks);
  for (std::size_t j = 0; j < ranks; ++j) sent[j].resize(form.Bytes(shards.Size(j)));
  for (auto& each : came) each.resize(form.Bytes(own));
  const auto encoder = [&](int turn) {
    return Encoder(form, data.size(), buffers.shape.step, communicator.rank(), turn);
  };
  co_await OffThread(buffers, [&] {
    const Encoder encode = encoder(0);
    for (std::size_t j = 0; j < ranks; ++j) encode(shards.Begin(j), part(j), sent[j]);
  });
  came[rank] = sent[rank];
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  co_await ExchangeBlocks(communicator, all, rank, sent, came, tag);
  co_await OffThread(buffers, [&] {
    std::vector<float> decoded(own);
    for (std::size_t r = 0; r < ranks; ++r) {
      DecodeBlocks(form, came[r], decoded, "blocks of rank " + std::to_string(r));
      if (r == 0) {
        std::ranges::copy(decoded, part(rank).begin());
      } else {
        AddInto(decoded, part(rank));
      }
    }
    encoder(1)(shards.Begin(rank), part(rank), sent[rank]);
  });
  // Now `sent` holds the sums: this rank's goes to all, and the others' arrive.
  if (sum.gathers_around) {
    co_await GatherAround(communicator, sent, tag + 1);
  } else {
    const CodedBlocks to_all(ranks, sent[rank]);
    co_await ExchangeBlocks(communicator, all, rank, to_all, sent, tag + 1);
  }
  co_await OffThread(buffers, [&] {
    for (std::size_t j = 0; j < ranks; ++j) {
      DecodeBlocks(form, sent[j], part(j), "the sum of blocks of rank " + std::to_string(j));
    }
  });
}

RoundPlan RoundsInOneLevel(const BlockSum& sum, std::size_t elements, const Topology& topology) {
  const BlockForm& form = sum.form;
  RoundPlan plan;
  const auto ranks = static_cast<std::size_t>(topology.ranks);
  plan.per_rank.resize(ranks);
  const Shards shards{elements, ranks};
  // Shards have at most two sizes, and empty ones are not sent.
  std::uint64_t all_bytes = 0;
  for (std::size_t j = 0; j < ranks; ++j) all_bytes += form.Bytes(shards.Size(j));
  std::vector<Traffic> scattered(ranks), gathered(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t own = form.Bytes(shards.Size(rank));
    const std::uint64_t copies = own > 0 ? ranks - 1 : 0;
    const std::uint64_t others = shards.NonEmpty() - (own > 0 ? 1 : 0);
    // messages_sent, messages_received, bytes_sent, bytes_received
    scattered[rank] = {others, copies, all_bytes - own, copies * own};
    gathered[rank] = {copies, others, copies * own, all_bytes - own};
  }
  AddDirectRounds(scattered, ranks - 1, topology, plan);
  plan.rounds.back()[Work::kAdd] = shards.Size(0) * ranks;
  if (!sum.gathers_around) {
    AddDirectRounds(gathered, ranks - 1, topology, plan);
    return plan;
  }
  plan.rounds.push_back(RingRound(ranks - 1, (ranks - 1) * form.Bytes(shards.Largest()), topology));
  // A rank passes on all blocks but those of the next rank, where they began.
  const auto passed_by = [&](std::size_t rank) {
    const std::uint64_t next = form.Bytes(shards.Size(rank + 1));
    return std::pair(shards.NonEmpty() - (next > 0 ? 1 : 0), all_bytes - next);
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto [sent, sent_bytes] = passed_by(rank);
    const auto [received, received_bytes] = passed_by(rank + ranks - 1);
    plan.per_rank[rank] += {sent, received, sent_bytes, received_bytes};
  }
  return plan;
}

Task RunInTwoLevels(const BlockForm& form, Communicator& communicator, ExchangeBuffers& buffers,
                    std::span<float> data, int tag) {
  const TwoLevels levels(data.size(), communicator.topology(), communicator.rank());
  const auto of = [&](Part part) { return data.subspan(part.begin, part.size); };
  const std::size_t node = levels.node(), place = levels.place();
  const Part part = levels.OfPlace(place), shard = levels.OfNode(place, node);
  const std::vector<int> of_node = levels.RanksOfNode(), of_place = levels.RanksOfPlace();

  const auto encode = [&](int turn, Part range, std::span<std::byte> out) {
    Encoder(form, data.size(), buffers.shape.step, communicator.rank(), turn)(range.begin,
                                                                              of(range), out);
  };

  CodedBlocks to(levels.per_node());
  CodedBlocks came(levels.per_node(), std::vector<std::byte>(form.Bytes(part.size)));
  co_await OffThread(buffers, [&] {
    for (std::size_t j = 0; j < to.size(); ++j) {
      to[j].resize(form.Bytes(levels.OfPlace(j).size));
      encode(0, levels.OfPlace(j), to[j]);
    }
    came[place] = to[place];
  });
  co_await ExchangeBlocks(communicator, of_node, place, to, came, tag);

  CodedBlocks to_nodes(levels.nodes());
  CodedBlocks came_of_nodes(levels.nodes(), std::vector<std::byte>(form.Bytes(shard.size)));
  co_await OffThread(buffers, [&] {
    Add(form, came, of(part));
    for (std::size_t k = 0; k < to_nodes.size(); ++k) {
      to_nodes[k].resize(form.Bytes(levels.OfNode(place, k).size));
      encode(1, levels.OfNode(place, k), to_nodes[k]);
    }
    came_of_nodes[node] = to_nodes[node];
  });
  co_await ExchangeBlocks(communicator, of_place, node, to_nodes, came_of_nodes, tag + 1);

  // The sums that arrive for each shard of this part have the sizes that were sent.
  CodedBlocks& sums = to_nodes;
  co_await OffThread(buffers, [&] {
    Add(form, came_of_nodes, of(shard));
    encode(2, shard, sums[node]);
  });
  const CodedBlocks to_all(levels.nodes(), sums[node]);
  co_await ExchangeBlocks(communicator, of_place, node, to_all, sums, tag + 2);

  std::vector<std::byte> joined;
  for (const auto& each : sums) joined.insert(joined.end(), each.begin(), each.end());
  const CodedBlocks to_node(levels.per_node(), joined);
  CodedBlocks parts(levels.per_node());
  for (std::size_t j = 0; j < parts.size(); ++j) {
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < levels.nodes(); ++k) bytes += form.Bytes(levels.OfNode(j, k).size);
    parts[j].resize(bytes);
  }
  parts[place] = joined;
  co_await ExchangeBlocks(communicator, of_node, place, to_node, parts, tag + 3);
  co_await OffThread(buffers, [&] {
    for (std::size_t j = 0; j < parts.size(); ++j) {
      std::size_t from = 0;
      for (std::size_t k = 0; k < levels.nodes(); ++k) {
        const Part range = levels.OfNode(j, k);
        const std::size_t bytes = form.Bytes(range.size);
        DecodeBlocks(form, std::span(parts[j]).subspan(from, bytes), of(range), "a sum of blocks");
        from += bytes;
      }
    }
  });
}

RoundPlan RoundsInTwoLevels(const BlockForm& form, std::size_t elements, const Topology& topology) {
  RoundPlan plan;
  plan.per_rank.resize(static_cast<std::size_t>(topology.ranks));
  // bytes(levels of the sender, receiving member)
  const auto round = [&](bool within, std::size_t added, const auto& bytes) {
    std::vector<RankMessage> messages;
    for (int rank = 0; rank < topology.ranks; ++rank) {
      const TwoLevels levels(elements, topology, rank);
      const std::vector<int> members = within ? levels.RanksOfNode() : levels.RanksOfPlace();
      for (std::size_t j = 0; j < members.size(); ++j) {
        const std::uint64_t size = bytes(levels, j);
        if (members[j] != rank && size > 0) messages.push_back({rank, members[j], size});
      }
    }
    if (messages.empty()) return;
    AddRound(messages, topology, plan)[Work::kAdd] = added;
  };
  const TwoLevels first(elements, topology, 0);
  const auto bytes_of = [&](Part range) -> std::uint64_t { return form.Bytes(range.size); };
  round(true, first.OfPlace(0).size * first.per_node(),
        [&](const TwoLevels&, std::size_t j) { return bytes_of(first.OfPlace(j)); });
  round(false, first.OfNode(0, 0).size * first.nodes(), [&](const TwoLevels& from, std::size_t k) {
    return bytes_of(from.OfNode(from.place(), k));
  });
  round(false, 0, [&](const TwoLevels& from, std::size_t) {
    return bytes_of(from.OfNode(from.place(), from.node()));
  });
  round(true, 0, [&](const TwoLevels& from, std::size_t) {
    std::uint64_t bytes = 0;
    for (std::size_t k = 0; k < from.nodes(); ++k) bytes += bytes_of(from.OfNode(from.place(), k));
    return bytes;
  });
  return plan;
}

class BlockAllReduce final : public Collective {
 public:
  explicit BlockAllReduce(const BlockSum& sum) : sum_(sum) {}

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    return RunBlockAllReduce(sum_, communicator, buffers, buffers.dense, tag);
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    return BlockAllReduceRounds(sum_, sizes.payload_bytes.front() / sizeof(float), topology);
  }

 private:
  BlockSum sum_;
};

template <BlockCode kCode>
CollectiveDescriptor Descriptor(std::string_view name, std::string_view summary) {
  return {.name = name,
          .source = "Wang et al., ZeRO++, 2023, section 3.3",
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
            return std::make_unique<BlockAllReduce>(BlockSumOf(kCode, resolved));
          },
          .host_memory = true,
          .options = BlockSumOptions(),
          .traits = [](const Options&) { return CollectiveTraits{.mass = Conservation::kLost}; },
          .refuses = WhyNoBlockSum,
          .summary = summary,
          .deviations =
              "The sum is encoded a second time and gathered; the error of this rounding is lost."};
}

}  // namespace

Task RunBlockAllReduce(const BlockSum& sum, Communicator& communicator, ExchangeBuffers& buffers,
                       std::span<float> data, int tag) {
  if (communicator.size() == 1 || data.empty()) co_return;
  if (sum.InTwoLevels(communicator.topology())) {
    co_await RunInTwoLevels(sum.form, communicator, buffers, data, tag);
  } else {
    co_await RunInOneLevel(sum, communicator, buffers, data, tag);
  }
}

RoundPlan BlockAllReduceRounds(const BlockSum& sum, std::size_t elements,
                               const Topology& topology) {
  if (topology.ranks <= 1 || elements == 0) {
    RoundPlan plan;
    plan.per_rank.resize(static_cast<std::size_t>(topology.ranks));
    return plan;
  }
  return sum.InTwoLevels(topology) ? RoundsInTwoLevels(sum.form, elements, topology)
                                   : RoundsInOneLevel(sum, elements, topology);
}

std::vector<OptionSpec> BlockSumOptions() {
  return {BlockOption(), RoundingOption(),
          WholeOption("levels", 1, 1, 2, "2: first sums within nodes, then between them"),
          ChoiceOption("gather", "direct", {"direct", "ring"},
                       "how coded sums come to all ranks: from each owner at once, or around a "
                       "ring; in one level")};
}

BlockSum BlockSumOf(BlockCode code, const Options& resolved) {
  const BlockSum sum = {
      {code, CheckedBlock("a collective of blocks", resolved), RoundsAtRandom(resolved)},
      IntOption(resolved, "levels") == 2,
      StringOption(resolved, "gather") == "ring"};
  SPARFUSE_REQUIRE(
      !sum.two_levels || !sum.gathers_around,
      "gather = \"ring\" with levels = 2, which gathers between nodes and within them: "
      "expected levels = 1, or gather = \"direct\"");
  return sum;
}

std::string WhyNoBlockSum(const Options& resolved, const Topology& topology) {
  const bool ragged = topology.ranks % topology.ranks_per_node != 0;
  if (IntOption(resolved, "levels") == 1 || topology.nodes() == 1 || !ragged) return "";
  return "sums in two levels, over ranks with equal places in their nodes, and needs equally many "
         "on every node";
}

CollectiveDescriptor Int8BlocksAllReduce() {
  return Descriptor<BlockCode::kInt8>(
      "int8-blocks",
      "each rank sums the shard that it owns; values travel as bytes, with a scale for each block");
}
CollectiveDescriptor Int4BlocksAllReduce() {
  return Descriptor<BlockCode::kInt4>("int4-blocks",
                                      "each rank sums the shard that it owns; values travel as "
                                      "half bytes, with a scale for each block");
}
CollectiveDescriptor Fp8BlocksAllReduce() {
  return Descriptor<BlockCode::kFp8>("fp8-blocks",
                                     "each rank sums the shard that it owns; values travel as fp8 "
                                     "(E4M3), with a scale for each block");
}

}  // namespace sparfuse
