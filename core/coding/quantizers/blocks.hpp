// Declares the quantizers of blocks, and the option that they share with the collectives of blocks.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/base/options.hpp"
#include "core/coding/quantizers/quantizer.hpp"

namespace sparfuse {

// int8-blocks, int4-blocks, fp8-blocks, in the form that the all-reduces of these names send.
// FindQuantizer knows them. No payload of a method accepts them, so Quantizers() lacks them.
std::span<const QuantizerDescriptor> BlockQuantizers();

OptionSpec BlockOption();
OptionSpec RoundingOption();
// Whether the options, which have "rounding", say that values are rounded at random.
bool RoundsAtRandom(const Options& resolved);
// Returns the block size. Throws Error{kConfig} naming `owner` if the option does not allow the
// number.
std::size_t CheckedBlock(std::string_view owner, const Options& resolved);

}  // namespace sparfuse
