// Declares the quantizers of blocks, and the option that they share with the collectives of blocks.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/base/options.hpp"
#include "core/coding/quantizers/quantizer.hpp"

namespace sparfuse {

// int8-blocks, int4-blocks, fp8-blocks, as all-reduces of the same names send them. FindQuantizer
// knows them; no payload of a method takes them, so that Quantizers() has none.
std::span<const QuantizerDescriptor> BlockQuantizers();

OptionSpec BlockOption();
// Throws Error{kConfig} naming `owner` for a number of elements that is none of the option's.
std::size_t CheckedBlock(std::string_view owner, const Options& resolved);

}  // namespace sparfuse
