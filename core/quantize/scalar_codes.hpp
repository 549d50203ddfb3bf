// Makes the codes of single elements (scalar_codes.inc) callable in kernels.
#pragma once

#include <cstdint>

#include "core/device/kernel.hpp"
#include "core/quantize/quantize_kernels.hpp"

namespace sparfuse::gpu {

#define SPARFUSE_CODE SPARFUSE_DEVICE
#include "core/quantize/scalar_codes.inc"
#undef SPARFUSE_CODE

}  // namespace sparfuse::gpu
