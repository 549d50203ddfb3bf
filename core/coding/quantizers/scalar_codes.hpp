// Makes the codes of single elements (scalar_codes.inc) callable in kernels.
#pragma once

#include <cstdint>

#include "core/coding/quantizers/quantize_kernels.hpp"
#include "core/device/kernel.hpp"

namespace sparfuse::gpu {

#define SPARFUSE_CODE SPARFUSE_DEVICE
#include "core/coding/quantizers/scalar_codes.inc"
#undef SPARFUSE_CODE

}  // namespace sparfuse::gpu
