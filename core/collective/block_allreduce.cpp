// All-reduces floats that are sent in blocks with a scale (core/coding/quantizers/block_codes.hpp).
// Each rank sends its shard j to rank j, which adds up the shards and sends the sum to all.
//
// Source:      G. Wang et al., "ZeRO++: extremely efficient collective communication for giant
//              model training", 2023, section 3.3 (quantised reduce-scatter by all-to-all).
// Deviations:  in one level by default, in two (block_exchange.hpp) on request. The sum is encoded
//              once more and gathered. All ranks, the one that made it too, take the decoded sum.
//              Rounding errors are lost.
#include "core/collective/block_allreduce.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/quantizers/block_codes.hpp"
#include "core/coding/quantizers/blocks.hpp"
#include "core/collective/algorithms.hpp"
#include "core/collective/block_exchange.hpp"
#include "core/payload/accumulate.hpp"

namespace sparfuse {
namespace {

class BlockAllReduce final : public Collective {
 public:
  BlockAllReduce(const BlockForm& form, bool two_levels) : form_(form), two_levels_(two_levels) {}

  Task Run(Communicator& communicator, ExchangeBuffers& buffers, int tag) const override {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const std::span<float> data = buffers.dense;
    if (ranks == 1 || data.empty()) co_return;
    if (InTwoLevels(communicator.topology())) {
      co_return co_await RunTwoLevelBlocks(form_, communicator, buffers, tag);
    }
    const Shards shards{data.size(), ranks};
    const auto part = [&](std::size_t j) { return data.subspan(shards.Begin(j), shards.Size(j)); };
    const std::size_t own = shards.Size(rank);
    // sent: the payloads to each rank, later the received sums. came: the arrivals.
    CodedBlocks sent(ranks), came(ranks);
    for (std::size_t j = 0; j < ranks; ++j) sent[j].resize(form_.Bytes(shards.Size(j)));
    for (auto& each : came) each.resize(form_.Bytes(own));
    co_await OffThread(buffers, [&] {
      for (std::size_t j = 0; j < ranks; ++j) EncodeBlocks(form_, part(j), sent[j]);
    });
    came[rank] = sent[rank];
    std::vector<int> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    co_await ExchangeBlocks(communicator, all, rank, sent, came, tag);
    co_await OffThread(buffers, [&] {
      std::vector<float> decoded(own);
      for (std::size_t r = 0; r < ranks; ++r) {
        DecodeBlocks(form_, came[r], decoded, Name() + ", of rank " + std::to_string(r));
        if (r == 0) {
          std::ranges::copy(decoded, part(rank).begin());
        } else {
          AddInto(decoded, part(rank));
        }
      }
      EncodeBlocks(form_, part(rank), sent[rank]);
    });
    // Now `sent` holds the sums: this rank's goes to all, and the others' arrive.
    const CodedBlocks to_all(ranks, sent[rank]);
    co_await ExchangeBlocks(communicator, all, rank, to_all, sent, tag + 1);
    co_await OffThread(buffers, [&] {
      for (std::size_t j = 0; j < ranks; ++j) {
        DecodeBlocks(form_, sent[j], part(j), Name() + ", sum of rank " + std::to_string(j));
      }
    });
  }

  RoundPlan Rounds(const ExchangeSizes& sizes, const Topology& topology) const override {
    RoundPlan plan;
    const auto ranks = static_cast<std::size_t>(topology.ranks);
    plan.per_rank.resize(ranks);
    const std::size_t elements = sizes.payload_bytes.front() / sizeof(float);
    if (ranks <= 1 || elements == 0) return plan;
    if (InTwoLevels(topology)) return TwoLevelBlockRounds(form_, elements, topology);
    const Shards shards{elements, ranks};
    // Shards have at most two sizes, and empty ones are not sent.
    std::uint64_t all_bytes = 0;
    for (std::size_t j = 0; j < ranks; ++j) all_bytes += form_.Bytes(shards.Size(j));
    std::vector<Traffic> scattered(ranks), gathered(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::uint64_t own = form_.Bytes(shards.Size(rank));
      const std::uint64_t copies = own > 0 ? ranks - 1 : 0;
      const std::uint64_t others = shards.NonEmpty() - (own > 0 ? 1 : 0);
      // messages_sent, messages_received, bytes_sent, bytes_received
      scattered[rank] = {others, copies, all_bytes - own, copies * own};
      gathered[rank] = {copies, others, copies * own, all_bytes - own};
    }
    AddDirectRounds(scattered, ranks - 1, topology, plan);
    plan.rounds.back()[Work::kAdd] = shards.Size(0) * ranks;
    AddDirectRounds(gathered, ranks - 1, topology, plan);
    return plan;
  }

 private:
  std::string Name() const { return std::string(descriptor().name); }
  bool InTwoLevels(const Topology& topology) const {
    return two_levels_ && topology.nodes() > 1 && topology.ranks_per_node > 1;
  }

  BlockForm form_;
  bool two_levels_;
};

std::string WhyNot(const Options& resolved, const Topology& topology) {
  const bool ragged = topology.ranks % topology.ranks_per_node != 0;
  if (IntOption(resolved, "levels") == 1 || topology.nodes() == 1 || !ragged) return "";
  return "sums in two levels, over ranks with equal places in their nodes, and needs equally many "
         "on every node";
}

template <BlockCode kCode>
CollectiveDescriptor Descriptor(std::string_view name, std::string_view summary) {
  return {.name = name,
          .source = "Wang et al., ZeRO++, 2023, section 3.3",
          .revision = 1,
          .payload = PayloadKind::kDense,
          .make = [](const Options& resolved) -> std::unique_ptr<Collective> {
            return std::make_unique<BlockAllReduce>(
                BlockForm{kCode, CheckedBlock("a collective of blocks", resolved)},
                IntOption(resolved, "levels") == 2);
          },
          .host_memory = true,
          .options = {BlockOption(), WholeOption("levels", 1, 1, 2,
                                                 "2: first sums within nodes, then between them")},
          .traits = [](const Options&) { return CollectiveTraits{.mass = Conservation::kLost}; },
          .refuses = WhyNot,
          .summary = summary,
          .deviations =
              "The sum is encoded a second time and gathered; the error of this rounding is lost."};
}

}  // namespace

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
