// All-reduces floats that are sent in blocks with a scale (core/coding/quantizers/block_codes.hpp).
//
// Source:      G. Wang et al., "ZeRO++: extremely efficient collective communication for giant
//              model training", 2023, section 3.3 (quantised reduce-scatter by all-to-all).
// Deviations:  in one level by default, in two on request (block_exchange.hpp). The sum is encoded
//              once more and gathered. All ranks, the one that made it too, take the decoded sum.
//              Rounding errors are lost.
#include "core/collective/block_allreduce.hpp"

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/coding/quantizers/blocks.hpp"

namespace sparfuse {
namespace {

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
