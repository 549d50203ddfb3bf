// Declares the all-reduces of blocks that share a scale.
#pragma once

#include <string>
#include <vector>

#include "core/collective/block_exchange.hpp"
#include "core/collective/collective.hpp"

namespace sparfuse {

// Options of collectives that sum blocks: "block", "rounding" and "levels".
std::vector<OptionSpec> BlockSumOptions();
// Throws Error{kConfig} for a size that blocks cannot have.
BlockSum BlockSumOf(BlockCode code, const Options& resolved);
// Why ranks cannot sum so (CollectiveDescriptor::refuses).
std::string WhyNoBlockSum(const Options& resolved, const Topology& topology);

CollectiveDescriptor Int8BlocksAllReduce();
CollectiveDescriptor Int4BlocksAllReduce();
CollectiveDescriptor Fp8BlocksAllReduce();

}  // namespace sparfuse
